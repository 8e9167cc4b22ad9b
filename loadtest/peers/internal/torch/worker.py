"""Computes products and recurrent steps with PyTorch, as the comparison asks."""

import base64
import json
import sys
import time


def say(**line):
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


try:
    import numpy as np
    import torch
except ImportError as reason:
    say(library="PyTorch", unavailable=f"{sys.executable}: {reason}")
    sys.exit(0)

WEIGHT, BIAS, X, RECURRENT, RECURRENT_BIAS, H, C = range(1, 8)
GATES = {"product": 1, "lstm": 4, "gru": 3}
BIAS_AMPLITUDE, STATE_AMPLITUDE = 0.5, 1.0
WARM_UP = 5  # the share of a measurement spent before anything counts
CHUNK = 1 << 22


class Unsupported(Exception):
    """The library has nothing for a case."""


def tensor(seed, shape, amplitude):
    """Returns the numbers of a tensor, a hash of their position."""
    n = int(np.prod(shape))
    out = np.empty(n, np.float32)
    for start in range(0, n, CHUNK):
        z = np.arange(start, min(n, start + CHUNK), dtype=np.uint64)
        z += np.uint64(seed << 40)
        z *= np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        unit = (z >> np.uint64(40)).astype(np.float32) * np.float32(1 / (1 << 23)) - np.float32(1)
        out[start : start + len(z)] = np.float32(amplitude) * unit
    return torch.from_numpy(out.reshape(shape))


def quantised(module):
    """Returns the module with 8-bit weights."""
    engines = [e for e in ("x86", "onednn", "fbgemm") if e in torch.backends.quantized.supported_engines]
    if not engines:
        raise Unsupported("no engine for 8-bit weights")
    torch.backends.quantized.engine = engines[0]
    config = torch.ao.quantization.per_channel_dynamic_qconfig
    if not isinstance(module, torch.nn.Linear):
        config = torch.ao.quantization.default_dynamic_qconfig
    wrapped = torch.nn.Sequential(module)
    return torch.ao.quantization.quantize_dynamic(wrapped, {type(module): config}, dtype=torch.qint8)[0]


def load(case):
    """Returns the module of a shape."""
    kind, inputs, units = case["kind"], case["inputs"], case["units"]
    n = GATES[kind] * units
    amplitude = np.sqrt(3 / (inputs if kind == "product" else inputs + units))
    cls = {"product": torch.nn.Linear, "lstm": torch.nn.LSTMCell, "gru": torch.nn.GRUCell}[kind]
    module = cls(inputs, units).eval()
    weight, bias = tensor(WEIGHT, (n, inputs), amplitude), tensor(BIAS, (n,), BIAS_AMPLITUDE)
    if kind == "product":
        state = {"weight": weight, "bias": bias}
    else:
        other = tensor(RECURRENT_BIAS, (n,), BIAS_AMPLITUDE) if kind == "gru" else torch.zeros(n)
        recurrent = tensor(RECURRENT, (n, units), amplitude)
        state = {"weight_ih": weight, "weight_hh": recurrent, "bias_ih": bias, "bias_hh": other}
    module.load_state_dict(state)
    if case["weights"] == "int8":
        return quantised(module)
    if case["weights"] == "bf16":
        return module.bfloat16()
    return module


def bind(case, module):
    """Returns a function that computes the batch and a list of its results."""
    kind, rows, units = case["kind"], case["rows"], case["units"]
    x = tensor(X, (rows, case["inputs"]), STATE_AMPLITUDE)
    state = [tensor(seed, (rows, units), STATE_AMPLITUDE) for seed in (H, C)]
    half = torch.bfloat16
    if kind == "product":
        if case["weights"] == "bf16":
            return lambda: [torch.nn.functional.linear(x.to(half), module.weight, module.bias)]
        if case["weights"] == "int8":
            return lambda: [module(x)]
        weight, bias = module.weight, module.bias
        return lambda: [torch.nn.functional.linear(x, weight, bias)]
    h, c = state
    if case["weights"] == "bf16":
        if kind == "lstm":
            return lambda: module(x.to(half), (h.to(half), c.to(half)))
        return lambda: [module(x.to(half), h.to(half))]
    if kind == "lstm":
        return lambda: module(x, (h, c))
    return lambda: [module(x, h)]


class Server:
    """Keeps what was prepared for the latest request."""

    def __init__(self):
        self.shape = self.module = self.case = self.call = None

    def prepare(self, case):
        shape = {**case, "rows": 0}
        if shape != self.shape:
            self.call = self.case = self.module = self.shape = None
            self.module, self.shape = load(case), shape
        if case != self.case:
            self.call, self.case = bind(case, self.module), case

    def answer(self, request):
        self.prepare(request["case"])
        if request["at"] is None:
            return self.measure(request["duration_ns"])
        results = torch.cat([r.float() for r in self.call()], dim=1).contiguous().numpy()
        values = results.reshape(-1)[request["at"]].astype("<f4").tobytes()
        return {"values": base64.b64encode(values).decode()}

    def measure(self, duration):
        call, clock = self.call, time.perf_counter_ns
        end = clock() + duration // WARM_UP
        while True:
            call()
            if clock() >= end:
                break
        times, end = [], clock() + duration
        while True:
            before = clock()
            call()
            after = clock()
            times.append(after - before)
            if after >= end:
                break
        times.sort()
        return {"best_ns": times[0], "median_ns": times[len(times) // 2], "calls": len(times)}


def main():
    torch.set_num_threads(int(sys.argv[1]))
    cpu = "AVX512" if "AVX512" in torch.__config__.show().split("CPU capability usage:")[1].split()[0] else "AVX2 or less"
    say(library="PyTorch", version=f"{torch.__version__} {cpu}", weights=["f32", "bf16", "int8"])
    server = Server()
    with torch.inference_mode():
        for line in sys.stdin:
            try:
                say(**server.answer(json.loads(line)))
            except Unsupported as reason:
                say(unsupported=str(reason))
            except Exception as reason:  # whatever it was, the comparison goes on
                say(error=f"{type(reason).__name__}: {reason}")


main()
