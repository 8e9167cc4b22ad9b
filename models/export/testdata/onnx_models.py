"""Write models as ONNX files, read them back and export them: onnx_models.py SEED DIRECTORY."""

import pathlib
import random
import sys
import tempfile

import onnx
import torch

import export
import families
import from_onnx


def random_config(rng, cell):
    return {"model_type": "rnn_lm", "cell": cell, "vocab_size": 23, "embedding_size": rng.randint(1, 20),
            "hidden_size": rng.randint(1, 40), "num_layers": rng.randint(1, 3), "tokenizer": "ids"}


def language(rng, cell, at, out):
    """A language model as torch.onnx.export writes it: everything but the stack has its name."""
    config = random_config(rng, cell)
    model = families.build(config).eval()
    torch.onnx.export(model, torch.tensor([[1, 2, 3]]), at)
    weights, nodes = from_onnx.read(at)
    names = model.state_dict().keys()
    state = {**from_onnx.stack("rnn", nodes), **{n: weights[n] for n in names if n in weights}}
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    export.export(out, config, state, inputs=[[rng.randrange(23) for _ in range(9)] for _ in range(6)])


def bidirectional(rng, cell, at):
    """A stack of two directions, some of whose nodes have no bias."""
    bias = rng.random() < 0.5
    module = families.RNN[cell](rng.randint(1, 9), rng.randint(1, 9), 2, bidirectional=True, bias=bias)
    torch.onnx.export(module, torch.zeros(3, 1, module.input_size), at)
    _, nodes = from_onnx.read(at)
    state = from_onnx.stack("encoder", nodes)
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, state["encoder." + name]), name
    if not bias:
        assert all(not state[name].any() for name in state if "bias" in name)


def refused(at):
    """Each attribute that changes what a node does, one at a time."""
    for cell, change, want in [
        ("gru", {"linear_before_reset": 0}, "linear_before_reset is 0, 1 wanted"),
        ("gru", {"clip": 2.5}, "clip is 2.5"),
        ("lstm", {"clip": 2.5}, "clip is 2.5"),
        ("lstm", {"input_forget": 1}, "input_forget is 1, 0 wanted"),
        ("lstm", {"direction": "reverse"}, "direction is"),
        ("lstm", {"activations": ["Relu", "Tanh", "Tanh"]}, "activations are"),
        ("lstm", {"activation_alpha": [0.5]}, "activation_alpha is [0.5]"),
        ("lstm", "peepholes", "input P (peepholes) is given"),
        ("lstm", "computed", "is computed, a constant wanted"),
    ]:
        torch.onnx.export(families.RNN[cell](3, 4), torch.zeros(2, 1, 3), at)
        model = onnx.load(at)
        node = next(n for n in model.graph.node if n.op_type == cell.upper())
        if change == "peepholes":
            node.input.extend([""] * (7 - len(node.input)) + [node.input[3]])
        elif change == "computed":
            node.input[1] = "elsewhere"
        else:
            name = next(iter(change))
            kept = [a for a in node.attribute if a.name != name]
            del node.attribute[:]
            node.attribute.extend(kept + [onnx.helper.make_attribute(name, change[name])])
        onnx.save(model, at)
        try:
            from_onnx.read(at)
        except ValueError as error:
            assert want in str(error), (change, error)
        else:
            raise AssertionError(f"{cell} with {change} was accepted")


def main(seed, directory):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as files:
        at = str(pathlib.Path(files, "m.onnx"))
        for i in range(6):
            cell = ["lstm", "gru"][i % 2]
            language(rng, cell, at, pathlib.Path(directory, f"{cell}-{i}"))
            bidirectional(rng, cell, at)
        refused(at)


main(int(sys.argv[1]), sys.argv[2])
