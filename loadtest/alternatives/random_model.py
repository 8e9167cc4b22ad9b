"""Makes a language model with random weights, large enough that the products take most of the time.

    python3 random_model.py DIRECTORY [--hidden 1024] [--layers 2]

Weights are drawn so that states do not saturate and do not blow rounding up, which lets two libraries choose the same
tokens nearly always. It writes printable ASCII only, so that its texts can be compared.
"""

import argparse
import json
import math
import pathlib

import torch

import networks

PRINTABLE = range(32, 127)


def make(directory, hidden, layers, seed=1):
    """Write the directory of a model that reads and writes bytes."""
    config = {
        "model_type": "rnn_lm", "cell": "lstm", "vocab_size": 256, "embedding_size": hidden, "hidden_size": hidden,
        "num_layers": layers, "tokenizer": {"type": "bytes"},
    }
    random = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, value in networks.families.build(config).state_dict().items():
        bound = 1.0 if name == "embed.weight" else math.sqrt(3 / (2 * hidden))
        bias = "bias" in name
        tensors[name] = torch.zeros_like(value) if bias else (2 * torch.rand(value.shape, generator=random) - 1) * bound
    tensors["out.bias"][:PRINTABLE.start] = tensors["out.bias"][PRINTABLE.stop :] = -100
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    networks.storage.save(directory / "model.safetensors", tensors)
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=2)
    options = parser.parse_args()
    make(options.directory, options.hidden, options.layers)


if __name__ == "__main__":
    main()
