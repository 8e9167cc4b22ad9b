"""Measures what each setting of the alternative brings, and prints it as Markdown.

    python3 tune.py MODEL_DIRECTORY... [--seconds S] [--rounds N] [--rows 1,8,64] [--loadtest PROGRAM --cellmq PROGRAM]

First the library: batches of so many requests are computed, without a server around them, the same ones with each
setting. Every setting runs in a process of its own, since some count only when PyTorch is loaded. Then, if the load test
is given, the server: a closed loop of 64 requests, and arrivals at the same rate for each setting.
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
import tempfile
import time

LIBRARIES = pathlib.Path("/usr/lib/x86_64-linux-gnu")
# The chosen settings, and what is measured beside them: each with one thing changed.
CHOSEN = {"threads": 1, "jit": True, "packed": True, "blas": "SkylakeX", "aten": "avx512", "library": "openblas-openmp"}
CHANGES = {
    "as chosen": {},
    "two threads": {"threads": 2},
    "loops not compiled": {"jit": False},
    "padded to the longest, not packed": {"packed": False},
    "OpenBLAS' own choice of kernels": {"blas": ""},
    "PyTorch's own choice of vector instructions": {"aten": ""},
    "OpenBLAS with POSIX threads": {"library": "openblas-pthread"},
    "the same, two threads": {"library": "openblas-pthread", "threads": 2},
    "reference BLAS": {"library": "blas"},
}
# Arguments of the server, each measured alone.
ARGUMENTS = ["", "--max-delay=1", "--max-delay=5", "--max-batch=16", "--max-batch=128", "--switch-ms=1"]


def environment(setting):
    """Return the environment in which PyTorch is to be loaded."""
    library = str(LIBRARIES / setting["library"])
    env = dict(os.environ, OMP_NUM_THREADS=str(setting["threads"]), LD_LIBRARY_PATH=library)
    for name, key in ("OPENBLAS_CORETYPE", "blas"), ("ATEN_CPU_CAPABILITY", "aten"):
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


def measure(model, setting, rows, seconds, counts):
    """Return requests a second for each size of batch, and how many batches that was.

    The figure is the median of three runs over the same batches, after a first batch that does not count, and of one run
    where that takes longer than the seconds. Without counts, as many batches are computed as fit into a third of the
    seconds, and at least one.
    """
    import torch

    import networks

    torch.set_num_threads(setting["threads"])
    requests = inputs(json.loads((pathlib.Path(model) / "config.json").read_text())["model_type"] == "rnn_seq2seq")
    rates, found = [], []
    with torch.inference_mode():
        predictor = networks.load(model, jit=setting["jit"], packed=setting["packed"])
        loaded = [line.split()[-1] for line in open("/proc/self/maps", encoding="utf-8") if "blas.so" in line]
        if loaded and setting["library"] not in loaded[0]:
            sys.exit(f"{loaded[0]} was loaded, not one of {setting['library']}")
        for i, n in enumerate(rows):
            predictor(requests[:n])
            count = counts[i] if counts else fitting(predictor, requests, n, seconds / 3)
            runs = [timed(predictor, requests, n, count)]
            if runs[0] < seconds:
                runs += [timed(predictor, requests, n, count) for _ in range(2)]
            rates.append(n * count / statistics.median(runs))
            found.append(count)
    return rates, found


def fitting(predictor, requests, n, seconds):
    """Return how many batches of n requests fit into the time, at least 1."""
    once = timed(predictor, requests, n, 1)
    return max(1, round(seconds / once))


def timed(predictor, requests, n, count):
    """Return the seconds that count batches of n requests take."""
    source = itertools.cycle(requests)
    begin = time.perf_counter()
    for _ in range(count):
        predictor(list(itertools.islice(source, n)))
    return time.perf_counter() - begin


def library(options, rows):
    """Print what the settings of the library bring: the better of the rounds, in which they take turns."""
    print(f"Requests a second of one process without a server, with batches of {', '.join(map(str, rows))} requests, the same "
          f"ones in each line of a model; the best of {options.rounds} rounds, in which the settings took turns.\n")
    print("| model | setting | " + " | ".join(str(n) for n in rows) + " |\n|---|---|" + "---:|" * len(rows))
    settings = {name: CHOSEN | change for name, change in CHANGES.items()}
    missing = {name for name, setting in settings.items() if not (LIBRARIES / setting["library"]).is_dir()}
    for model in options.models:
        best, counts = {name: [0] * len(rows) for name in settings if name not in missing}, []
        for _ in range(options.rounds):
            for name in best:
                rates, counts = one(options, model, name, settings[name], counts)
                best[name] = [max(pair) for pair in zip(best[name], rates)]
        for name, rates in best.items():
            print(f"| {pathlib.Path(model).name} | {name} | {' | '.join(f'{r:.1f}' for r in rates)} |", flush=True)
    if missing:
        print(f"\nNot installed here: {', '.join(sorted(missing))}.")


def one(options, model, name, setting, counts):
    """Return what measure does, in a process of its own."""
    command = [sys.executable, __file__, model, "--seconds", str(options.seconds), "--rows", options.rows,
               "--one", json.dumps(setting), "--counts", json.dumps(counts)]
    found = subprocess.run(command, env=environment(setting), capture_output=True, text=True, check=False)
    if found.returncode:
        sys.exit(f"{name}: {found.stderr}")
    return json.loads(found.stdout)


def server(options):
    """Print what the arguments of the server bring, for the first two models."""
    print("\nThe whole server, two processes of one thread: requests a second of a closed loop of 64 requests, and latencies "
          "in milliseconds with Poisson arrivals at 15 % of what the faster of it and cellmq can do, medians of two rounds: "
          "what differs by less than a tenth may be equal.\n")
    print("| model | arguments | requests/s | p50 | p90 |\n|---|---|---:|---:|---:|")
    for model in map(pathlib.Path, options.models[:2]):
        for argument in ARGUMENTS:
            system = contest(options, model, argument)
            load = system["open"][0]
            p50, p90 = (f"{load[p]:.1f}" if load[p] else "-" for p in ("p50_ms", "p90_ms"))
            print(f"| {model.name} | {argument or 'as chosen'} | {system['closed']['throughput']:.0f} | {p50} | {p90} |", flush=True)


def contest(options, model, argument):
    """Return the load test's report on the server with one more argument."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        command = [options.loadtest, "alternatives", "--program", options.cellmq, "--models", model.name,
                   "--bundled", str(model.parent), "--server", f"{sys.executable} {pathlib.Path(__file__).with_name('serve.py')}",
                   "--shapes", "2x1", "--rounds", "2", "--shares", "0.15", "--warmup", "500ms", "--duration", f"{options.seconds}s",
                   "--json", str(report), "--markdown", os.devnull]
        if argument:
            command.append(f"--server-arg={argument}")
        found = subprocess.run(command, env=environment(CHOSEN), capture_output=True, text=True, check=False)
        if found.returncode:
            sys.exit(f"{argument}: {found.stderr}")
        systems = json.loads(report.read_text())["models"][0]["systems"]
    return next(s for s in systems if s["name"].startswith("PyTorch"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="+")
    parser.add_argument("--seconds", type=float, default=2, help="for each figure")
    parser.add_argument("--rounds", type=int, default=2, help="of the library's settings")
    parser.add_argument("--rows", default="1,8,64", help="sizes of batches")
    parser.add_argument("--loadtest", help="the program that puts load on the server")
    parser.add_argument("--cellmq", help="the program beside the server")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--counts", default="[]", help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows = [int(n) for n in options.rows.split(",")]
    if options.one:
        print(json.dumps(measure(options.models[0], json.loads(options.one), rows, options.seconds, json.loads(options.counts))))
        return
    print("## What the settings bring\n")
    print(f"Load average at the beginning: {os.getloadavg()[0]:.1f}.\n")
    library(options, rows)
    if options.loadtest:
        server(options)


if __name__ == "__main__":
    main()
