#!/usr/bin/env python3
"""Make a cellmq model directory of PyTorch weights, with golden outputs that prove the import.

    export.py write  DIR WEIGHTS --inputs FILE   add model.safetensors and golden.jsonl to config.json and vocabularies
    export.py verify DIR --cellmq "go run ."     ask cellmq and PyTorch the same and compare

WEIGHTS is what torch.save made of a state_dict, or a .safetensors file. In Python: export(...) and verify(...). Needs
PyTorch 1.13 or later and nothing else; docs/models.md has the parameters of each family.
"""

import argparse
import hashlib
import json
import math
import os
import pathlib
import pickle
import shlex
import subprocess
import sys

import torch

import families
import storage
from golden import Oracle

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
MOST_FAULTS = 10


class ExportError(ValueError):
    """Says what of a model cannot be exported or is not as it should be, a fault a line."""


def export(directory, config, state, vocabularies=None, inputs=(), dtype="f32", max_tokens=16):
    """Write a model directory.

    config is the content of config.json, state a state_dict with the family's names, vocabularies a dictionary of file
    names to lists of tokens, inputs are texts or lists of token ids to record golden outputs of, from the weights as they
    are stored in dtype. Return the inputs left out, because the best two candidates are too close on the way: there,
    rounding may decide.
    """
    out = pathlib.Path(directory)
    model = families.build(config)
    stored = fit(state, model.state_dict(), dtype)
    out.mkdir(parents=True, exist_ok=True)
    for name, tokens in (vocabularies or {}).items():
        write(out / name, json.dumps(tokens, ensure_ascii=False))
    lines, left_out = record(restore(model, stored), config, out, inputs, max_tokens)
    weights = out / ".model.safetensors.part"
    storage.save(weights, stored)
    os.replace(weights, out / "model.safetensors")
    for line in lines:
        line["weights_sha256"] = sha256(out / "model.safetensors")
    write(out / "golden.jsonl", "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    write(out / "config.json", json.dumps(config, indent=2, ensure_ascii=False) + "\n")
    return left_out


def fit(state, wanted, dtype):
    """Return the tensors of a state_dict as they are stored, all of the wanted names and shapes, or raise ExportError."""
    faults, stored = [], {}
    for name, like in wanted.items():
        if name not in state:
            faults.append(f"tensor {name}: missing, shape {list(like.shape)} wanted")
            continue
        tensor = state[name].detach().cpu()
        if tensor.shape != like.shape:
            faults.append(f"tensor {name}: shape {list(tensor.shape)}, {list(like.shape)} wanted")
            continue
        stored[name] = tensor.to(DTYPES[dtype])
        if not stored[name].isfinite().all():
            faults.append(f"tensor {name}: values up to {tensor.abs().max().item():g}, finite ones in {dtype} wanted")
    faults += [f"tensor {name}: shape {list(getattr(tensor, 'shape', []))}, not part of the model"
               for name, tensor in state.items() if name not in wanted]
    refuse(faults)
    return stored


def restore(model, stored):
    """Give a model the weights as they are stored, in float64, where each is exact."""
    model.double().load_state_dict({name: tensor.double() for name, tensor in stored.items()})
    return model


def record(model, config, directory, inputs, max_tokens):
    """Return the golden lines of inputs, and the inputs left out."""
    oracle, lines, left_out = Oracle(model, config, directory), [], []
    for given in inputs:
        line, margin = oracle.answer(given, max_tokens)
        if margin > 2 * line["tolerance"]:
            lines.append(line)
        else:
            left_out.append(given)
    return lines, left_out


def verify(directory, command=None):
    """Compare what golden.jsonl says with PyTorch's answers from the directory's own files and, if a command that runs
    cellmq is given, with its answers too. Return the number of inputs, or raise ExportError."""
    out = pathlib.Path(directory).resolve()
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    model = families.build(config)
    oracle = Oracle(restore(model, fit(storage.load(out / "model.safetensors"), model.state_dict(), "f32")), config, out)
    recorded = [json.loads(line) for line in (out / "golden.jsonl").read_text(encoding="utf-8").splitlines()]
    faults, weights = [], sha256(out / "model.safetensors")
    for n, line in enumerate(recorded, 1):
        if line.get("weights_sha256", weights) != weights:
            faults.append(f"golden.jsonl line {n}: weights_sha256 is {line['weights_sha256']!r}, that of the file {weights!r}")
        answer, _ = oracle.answer(line.get("input", line.get("input_ids")), line.get("max_tokens"))
        faults += [f"golden.jsonl line {n}: PyTorch: {fault}" for fault in differences(line, answer, oracle.labels)]
    if command:
        for n, (line, final) in enumerate(zip(recorded, ask(command, out, recorded)), 1):
            faults += [f"golden.jsonl line {n}: cellmq: {fault}" for fault in differences(line, final, oracle.labels)]
    refuse(faults)
    return len(recorded)


def sha256(path):
    """Return the SHA-256 of a file in hexadecimal."""
    with open(path, "rb") as file:
        total = hashlib.sha256()
        while block := file.read(1 << 20):
            total.update(block)
    return total.hexdigest()


def ask(command, directory, lines):
    """Return the final frames of requests to a worker of their own, with float32 weights."""
    keys = ("input", "max_tokens")
    payloads = [{**{k: line[k] for k in keys if k in line}, **({"input": line["input_ids"]} if "input_ids" in line else {})}
                for line in lines]
    done = subprocess.run(
        [*shlex.split(command), "request", "--embedded", "--model-dir", str(directory.parent), "--payloads", "--json",
         "--concurrency", "1", directory.name],
        input="".join(json.dumps(p) + "\n" for p in payloads), stdout=subprocess.PIPE, text=True, encoding="utf-8",
        env={**os.environ, "CELLMQ_WEIGHTS": "f32"}, check=False)
    frames = [json.loads(frame) for frame in done.stdout.splitlines()]
    finals = [frame for frame in frames if frame["type"] in ("final", "error")]
    if len(finals) != len(lines):
        raise ExportError(f"{command}: exit status {done.returncode}, {len(finals)} answers to {len(lines)} requests")
    for final in finals:
        if final["type"] == "error":
            raise ExportError(f"{command}: {final['code']}: {final['message']}")
    return finals


def differences(line, answer, labels):
    """Yield what differs between a golden line and an answer: another one, or a final frame."""
    for key in ("tokens", "text", "finish_reason", "label"):
        if key in line and answer.get(key, [] if key == "tokens" else "") != line[key]:
            yield f"{key} is {answer.get(key)!r}, {line[key]!r} wanted"
    numbers = [(key, [answer.get(key)], [line[key]]) for key in ("logprob", "input_logprob") if key in line and key in answer]
    if "logits" in line and "scores" in answer:
        numbers.append(("scores", [answer["scores"].get(label) for label in labels], softmax(line["logits"])))
    elif "logits" in line:
        numbers.append(("logits", answer.get("logits", []), line["logits"]))
    for key, got, wanted in numbers:
        if len(got) != len(wanted) or not all(g is not None and abs(g - w) <= line["tolerance"] for g, w in zip(got, wanted)):
            yield f"{key} is {got}, {wanted} within {line['tolerance']} wanted"


def softmax(logits):
    best = max(logits, default=0)
    weights = [math.exp(x - best) for x in logits]
    return [w / sum(weights) for w in weights]


def refuse(faults):
    if faults:
        more = [f"and {len(faults) - MOST_FAULTS} more"] if len(faults) > MOST_FAULTS else []
        raise ExportError("\n".join(faults[:MOST_FAULTS] + more))


def write(path, text):
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    w = commands.add_parser("write", help="add weights and golden outputs to a directory that has config.json and vocabularies")
    w.add_argument("directory", type=pathlib.Path)
    w.add_argument("weights", type=pathlib.Path)
    w.add_argument("--dtype", choices=DTYPES, default="f32", help="how the weights are stored (default f32)")
    w.add_argument("--inputs", type=pathlib.Path, help="file of one input a line to record golden outputs of")
    w.add_argument("--max-tokens", type=int, default=16, help="bound of a language model's golden outputs (default 16)")
    v = commands.add_parser("verify", help="compare the golden outputs with PyTorch's and cellmq's answers")
    v.add_argument("directory", type=pathlib.Path)
    v.add_argument("--cellmq", help="command that runs cellmq, for example 'go run .'")
    given = parser.parse_args(arguments)
    try:
        if given.command == "verify":
            print(verify(given.directory, given.cellmq), "golden outputs are right")
            return 0
        return write_command(given)
    except (OSError, ValueError, pickle.UnpicklingError) as error:
        print(error, file=sys.stderr)
        return 1


def write_command(given):
    config = json.loads((given.directory / "config.json").read_text(encoding="utf-8"))
    if given.weights.suffix == ".safetensors":
        state = storage.load(given.weights)
    else:
        state = torch.load(given.weights, map_location="cpu", weights_only=True)
    inputs = given.inputs.read_text(encoding="utf-8").splitlines() if given.inputs else []
    left_out = export(given.directory, config, state, inputs=inputs, dtype=given.dtype, max_tokens=given.max_tokens)
    print(f"{len(inputs) - len(left_out)} golden outputs")
    for text in left_out:
        print(f"left out, two candidates are too close: {text!r}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
