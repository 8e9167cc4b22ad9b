"""Measures what each setting brings, so that the comparison is with the best ones.

    python3 tune.py MODEL_DIRECTORY INPUTS [--seconds S] [--rows 1,8,64]

INPUTS has one request a line: {"input": "...", "max_tokens": 16}. Every setting runs in a process of its own, since some
count only when PyTorch is loaded. It prints a line of JSON for each: requests a second with batches of so many requests,
without a server around them.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time

# What is measured: the chosen settings first, then each of the others with one thing changed.
CHOSEN = {"threads": 1, "jit": True, "packed": True, "blas": "SkylakeX", "aten": "avx512", "library": ""}
CHANGES = [
    {},
    {"threads": 2},
    {"jit": False},
    {"packed": False},
    {"blas": ""},
    {"blas": "Haswell"},
    {"aten": ""},
    {"library": "/usr/lib/x86_64-linux-gnu/blas"},
]


def environment(setting):
    """Return the environment in which PyTorch is to be loaded."""
    env = dict(os.environ, OMP_NUM_THREADS=str(setting["threads"]))
    for name, value in ("OPENBLAS_CORETYPE", setting["blas"]), ("ATEN_CPU_CAPABILITY", setting["aten"]), ("LD_LIBRARY_PATH", setting["library"]):
        env.pop(name, None)
        if value:
            env[name] = value
    return env


def measure(model, inputs, setting, rows, seconds):
    """Return requests a second, the median of three runs, for each size of batch."""
    import torch

    import networks

    torch.set_num_threads(setting["threads"])
    with open(inputs, encoding="utf-8") as file:
        requests = [json.loads(line) for line in file]
    rates = {}
    with torch.inference_mode():
        predictor = networks.load(model, jit=setting["jit"], packed=setting["packed"])
        for n in rows:
            source = itertools.cycle(requests)
            found = []
            for trial in range(4):  # the first one warms up
                done, begin = 0, time.process_time() if setting["threads"] == 1 else time.perf_counter()
                clock = time.process_time if setting["threads"] == 1 else time.perf_counter
                end = time.perf_counter() + seconds / 4
                while done == 0 or time.perf_counter() < end:
                    predictor(list(itertools.islice(source, n)))
                    done += n
                found.append(done / (clock() - begin))
            rates[n] = round(statistics.median(found[1:]), 1)
    return rates


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("inputs")
    parser.add_argument("--seconds", type=float, default=2, help="for each size of batch")
    parser.add_argument("--rows", default="1,8,64", help="sizes of batches")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows = [int(n) for n in options.rows.split(",")]
    if options.one:
        print(json.dumps(measure(options.model, options.inputs, json.loads(options.one), rows, options.seconds)))
        return
    for change in CHANGES:
        setting = CHOSEN | change
        command = [sys.executable, __file__, options.model, options.inputs, "--seconds", str(options.seconds), "--rows", options.rows,
                   "--one", json.dumps(setting)]
        found = subprocess.run(command, env=environment(setting), capture_output=True, text=True, check=False)
        if found.returncode:
            print(json.dumps({"change": change, "error": found.stderr.strip().splitlines()[-1:]}), flush=True)
        else:
            print(json.dumps({"change": change, "requests_per_second": json.loads(found.stdout)}), flush=True)


if __name__ == "__main__":
    main()
