"""Tests of the models' predictors, and of the server over a socket."""

import json
import pathlib
import socket
import subprocess
import sys
import unittest

import torch

import networks

HERE = pathlib.Path(__file__).resolve().parent
ZOO = networks.ROOT / "models" / "zoo"


def golden(model, most):
    """Return requests, and what cellmq answers: greedy ones, with a text or a label."""
    cases = []
    for line in (ZOO / model / "golden.jsonl").read_text().splitlines():
        case = json.loads(line)
        if any(key in case for key in ("beam_width", "temperature", "seed", "stop", "bytes")):
            continue
        cases.append(({"id": len(cases), "input": case["input"], "max_tokens": case.get("max_tokens")}, case))
    return cases[:most]


def same(answer, case):
    if "label" in case:
        return answer["label"] == case["label"]
    return answer["text"] == case["text"] and answer["output_tokens"] == len(case["tokens"])


class Golden(unittest.TestCase):
    """Every way to compute a model gives the model's golden outputs, in one batch and alone."""

    def check(self, model):
        cases = golden(model, 24)
        self.assertGreater(len(cases), 4)
        for packed in True, False:
            for jit in True, False:
                with self.subTest(packed=packed, jit=jit), torch.inference_mode():
                    predictor = networks.load(ZOO / model, jit=jit, packed=packed)
                    for batch in cases, cases[:1], cases[3:5]:
                        for answer, (_, case) in zip(predictor([r for r, _ in batch]), batch):
                            self.assertTrue(same(answer, case), f"{answer} is not {case}")

    def test_translation(self):
        self.check("g2p-en")

    def test_generation(self):
        self.check("kjv-lm")

    def test_classification(self):
        self.check("langid")

    def test_trees(self):
        self.check("listops")


class Server(unittest.TestCase):
    def setUp(self):
        command = [sys.executable, str(HERE / "serve.py"), str(ZOO / "listops"), "--threads", "1", "--max-batch", "4"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.process.stdout.close)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.stdin.close)
        host, port = self.process.stdout.readline().split()[1].split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=20)
        self.addCleanup(self.socket.close)
        self.replies = self.socket.makefile("rb")
        self.addCleanup(self.replies.close)

    def send(self, *requests):
        texts = [json.dumps(r).encode() for r in requests]
        self.socket.sendall(b"".join(len(t).to_bytes(4, "big") + t for t in texts))

    def answers(self, n):
        found = {}
        for _ in range(n):
            answer = json.loads(self.replies.read(int.from_bytes(self.replies.read(4), "big")))
            found[answer["id"]] = answer
        return found

    def test_answers(self):
        cases = golden("listops", 10)
        self.send(*(r for r, _ in cases))
        for number, answer in self.answers(len(cases)).items():
            self.assertEqual(answer.get("label"), cases[number][1]["label"], answer)

    def test_a_bad_request_fails_alone(self):
        self.send({"id": 1, "input": "( 1 2"}, {"id": 2, "input": "7"}, {"id": 3, "input": 7}, {"id": 4, "input": "( 2 nonsense )"})
        answers = self.answers(4)
        self.assertEqual([n for n, a in sorted(answers.items()) if "error" in a], [1, 3, 4])
        self.assertEqual(answers[2]["label"], "7")

    def test_what_is_no_request_ends_the_connection(self):
        for message in b"\0\0\0\1[", b"\xff\xff\xff\xff", b"\0\0\0\2{}":
            with socket.create_connection(self.socket.getpeername(), timeout=20) as other:
                other.sendall(message)
                self.assertEqual(other.recv(1), b"")


if __name__ == "__main__":
    unittest.main()
