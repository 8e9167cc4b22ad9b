#!/usr/bin/env python3
"""LSTM and GRU nodes of an ONNX file under PyTorch's names, for export.py.

    from_onnx.py FILE    list what the file has

read(path) returns the file's weights and its recurrent nodes; stack("rnn", nodes) names those of consecutive layers like
nn.LSTM and nn.GRU do. Needs the package onnx (Debian: python3-onnx). ONNX has the gates of an LSTM in the order i, o, f, c
and PyTorch in i, f, g, o; those of a GRU in z, r, h and PyTorch in r, z, n. What is not in the families is refused: other
activations, peepholes, clipping, coupled gates, a GRU with the reset gate before the product, a backward direction alone.
"""

import sys

import onnx
import onnx.numpy_helper
import torch

GATES = {"LSTM": [0, 2, 3, 1], "GRU": [1, 0, 2]}  # the ONNX gate at each of PyTorch's places
ACTIVATIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"]}
PEEPHOLES = 7  # place among the inputs of an LSTM
DEFAULTS = {"clip": (0.0, 0), "input_forget": (0,), "layout": (0, 1), "direction": (b"forward", b"bidirectional"),
            "activation_alpha": ([],), "activation_beta": ([],)}


def read(path):
    """Return a file's weights by name, and of each LSTM and GRU node, in the order of the graph, a dictionary: cell,
    hidden_size, bidirectional, and the tensors of nn.LSTM or nn.GRU without the number of the layer.

    The weight of a MatMul before the addition of "x.bias" comes as "x.weight", as nn.Linear has it.
    """
    graph = onnx.load(path).graph
    weights = {t.name: torch.tensor(onnx.numpy_helper.to_array(t)) for t in graph.initializer}
    nodes = [recurrent(node, weights) for node in graph.node if node.op_type in GATES]
    products = {node.output[0]: node.input[1] for node in graph.node if node.op_type == "MatMul" and node.input[1] in weights}
    for node in graph.node:
        if node.op_type != "Add":
            continue
        for product, bias in (node.input, reversed(node.input)):
            if product in products and bias.endswith(".bias"):
                weights[bias[:-len("bias")] + "weight"] = weights[products[product]].T.contiguous()
    return weights, nodes


def stack(module, nodes):
    """Return the tensors of nodes that are the layers of one module, the lowest first, as its state_dict has them."""
    return {f"{module}.{name}_l{i}{way}": tensor
            for i, node in enumerate(nodes) for way, tensors in node["tensors"].items() for name, tensor in tensors.items()}


def recurrent(node, weights):
    kind, given = node.op_type, {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    check(node, given)
    inputs = list(node.input) + [""] * 4
    for name in inputs[1:4]:
        if name and name not in weights:
            raise ValueError(f"{kind} {node.name!r}: input {name!r} is computed, a constant wanted; export with constant folding")
    w, r = weights[inputs[1]], weights[inputs[2]]
    gates, hidden, directions = len(GATES[kind]), r.shape[2], w.shape[0]
    b = weights[inputs[3]] if inputs[3] else w.new_zeros(directions, 2 * gates * hidden)
    order = lambda t: t.reshape(gates, hidden, -1)[GATES[kind]].reshape(t.shape)
    return {"cell": kind.lower(), "hidden_size": hidden, "bidirectional": directions == 2, "tensors": {
        way: {"weight_ih": order(w[i]), "weight_hh": order(r[i]),
              "bias_ih": order(b[i, :gates * hidden]), "bias_hh": order(b[i, gates * hidden:])}
        for i, way in enumerate(["", "_reverse"][:directions])}}


def check(node, given):
    """Refuse what a node of PyTorch's cannot do."""
    kind = node.op_type
    for name, allowed in DEFAULTS.items():
        if given.get(name, allowed[0]) not in allowed:
            raise ValueError(f"{kind} {node.name!r}: {name} is {given[name]}, {allowed[0]} wanted")
    activations = [a.decode() for a in given.get("activations", [])]
    if activations not in ([], ACTIVATIONS[kind], 2 * ACTIVATIONS[kind]):
        raise ValueError(f"{kind} {node.name!r}: activations are {activations}, {ACTIVATIONS[kind]} wanted")
    if kind == "GRU" and given.get("linear_before_reset", 0) == 0:
        raise ValueError(f"GRU {node.name!r}: linear_before_reset is 0, 1 wanted")
    if kind == "LSTM" and len(node.input) > PEEPHOLES and node.input[PEEPHOLES]:
        raise ValueError(f"LSTM {node.name!r}: input P (peepholes) is given, none wanted")


def main(path):
    weights, nodes = read(path)
    for node in nodes:
        print(node["cell"], "hidden_size", node["hidden_size"], "bidirectional" if node["bidirectional"] else "forward",
              "input", node["tensors"][""]["weight_ih"].shape[1])
    for name, tensor in weights.items():
        print(name, list(tensor.shape))


if __name__ == "__main__":
    main(*sys.argv[1:])
