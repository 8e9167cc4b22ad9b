"""The safetensors file format, of which F32, F16 and BF16 are written and read here.

    8 bytes   length n of the header, little-endian
    n bytes   JSON: {"name": {"dtype", "shape", "data_offsets"}, ...}
    the rest  the tensors' values, little-endian, row-major, without gaps
"""

import ctypes
import json
import sys

import torch

TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def save(path, tensors):
    """Write a dictionary of tensors, each F32, F16 or BF16, to a file."""
    _want_little_endian()
    names = {t: n for n, t in TYPES.items()}
    header, values, end = {"__metadata__": {"format": "pt"}}, [], 0
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        size = tensor.numel() * tensor.element_size()
        header[name] = {"dtype": names[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [end, end + size]}
        values.append(ctypes.string_at(tensor.data_ptr(), size) if size else b"")
        end += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        file.writelines(values)


def load(path):
    """Return the tensors of a file that save wrote, by name."""
    _want_little_endian()
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        values = bytearray(file.read())
    header.pop("__metadata__", None)
    if max((entry["data_offsets"][1] for entry in header.values()), default=0) != len(values):
        raise ValueError(f"{path}: its tensors do not end where the file ends")
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if begin == end:
            tensors[name] = torch.empty(entry["shape"], dtype=TYPES[entry["dtype"]])
            continue
        tensors[name] = torch.frombuffer(values[begin:end], dtype=TYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def _want_little_endian():
    if sys.byteorder != "little":
        raise RuntimeError("byte order: big-endian, a little-endian machine wanted")
