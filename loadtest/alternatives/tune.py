"""Measures what each setting brings, and prints it as Markdown.

    python3 tune.py MODEL_DIRECTORY... [--seconds S] [--rows 1,8,64]

Every setting runs in a process of its own, since some count only when PyTorch is loaded. Batches of so many requests are
computed, without a server around them.
"""

import argparse
import itertools
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import time

# The chosen settings, and what is measured beside them: each with one thing changed.
CHOSEN = {"threads": 1, "jit": True, "packed": True, "blas": "SkylakeX", "aten": "avx512", "library": ""}
CHANGES = {
    "as chosen": {},
    "two threads": {"threads": 2},
    "loops not compiled": {"jit": False},
    "padded to the longest, not packed": {"packed": False},
    "OpenBLAS' own choice of kernels": {"blas": ""},
    "PyTorch's own choice of vector instructions": {"aten": ""},
    "reference BLAS, which Debian installs by itself": {"library": "/usr/lib/x86_64-linux-gnu/blas"},
}


def environment(setting):
    """Return the environment in which PyTorch is to be loaded."""
    env = dict(os.environ, OMP_NUM_THREADS=str(setting["threads"]))
    for name, key in ("OPENBLAS_CORETYPE", "blas"), ("ATEN_CPU_CAPABILITY", "aten"), ("LD_LIBRARY_PATH", "library"):
        env.pop(name, None)
        if setting[key]:
            env[name] = setting[key]
    return env


def inputs(words):
    """Return requests: one to three words, or a text of about 60 bytes that is to be continued by 8 to 64."""
    draw = random.Random(1)

    def word():
        return "".join(draw.choice("bcdfghjklmnprstvwz") + draw.choice("aeiou") for _ in range(draw.randint(1, 4)))

    requests = []
    for _ in range(256):
        if words:
            requests.append({"input": " ".join(word() for _ in range(draw.randint(1, 3)))})
            continue
        length = max(1, min(330, int(draw.lognormvariate(4.1, 0.65))))
        text = " ".join(word() for _ in range(length))[:length].strip()
        requests.append({"input": text, "max_tokens": draw.randint(8, 64)})
    return requests


def measure(model, setting, rows, seconds):
    """Return requests a second for each size of batch: the median of three runs after a first one.

    Where one batch takes longer than all runs are to take, there is no second.
    """
    import torch

    import networks

    torch.set_num_threads(setting["threads"])
    requests = inputs(json.loads((pathlib.Path(model) / "config.json").read_text())["model_type"] == "rnn_seq2seq")
    rates = []
    with torch.inference_mode():
        predictor = networks.load(model, jit=setting["jit"], packed=setting["packed"])
        for n in rows:
            source, found = itertools.cycle(requests), []
            for _ in range(4):
                done, begin = 0, time.perf_counter()
                while done == 0 or time.perf_counter() < begin + seconds / 4:
                    predictor(list(itertools.islice(source, n)))
                    done += n
                took = time.perf_counter() - begin
                found.append(done / took)
                if took > seconds:
                    break
            rates.append(statistics.median(found[1:] or found))
    return rates


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+")
    parser.add_argument("--seconds", type=float, default=2, help="for each size of batch")
    parser.add_argument("--rows", default="1,8,64", help="sizes of batches")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows = [int(n) for n in options.rows.split(",")]
    if options.one:
        print(json.dumps(measure(options.models[0], json.loads(options.one), rows, options.seconds)))
        return
    load = os.getloadavg()[0]
    print("## What the settings bring\n\nRequests a second of one process without a server, with batches of "
          f"{', '.join(map(str, rows))} requests. Load average at the beginning: {load:.1f}.\n")
    print("| model | setting | " + " | ".join(str(n) for n in rows) + " |\n|---|---|" + "---:|" * len(rows))
    for model in options.models:
        for name, change in CHANGES.items():
            setting = CHOSEN | change
            command = [sys.executable, __file__, model, "--seconds", str(options.seconds), "--rows", options.rows, "--one", json.dumps(setting)]
            found = subprocess.run(command, env=environment(setting), capture_output=True, text=True, check=False)
            if found.returncode:
                sys.exit(found.stderr)
            rates = " | ".join(f"{r:.1f}" for r in json.loads(found.stdout))
            print(f"| {pathlib.Path(model).name} | {name} | {rates} |", flush=True)


if __name__ == "__main__":
    main()
