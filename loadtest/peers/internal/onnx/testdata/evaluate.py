"""Checks ONNX models and computes them as the specification says.

Reads a line of JSON with a model and inputs, base64, and writes one with
outputs, or with the reason why that is not possible. The recurrent steps are
those of the node tests that come with the onnx package. Weights of 8 bits are
widened first.
"""

import base64
import json
import sys

try:
    import numpy as np
    import onnx
    from onnx import numpy_helper
    from onnx.backend.test.case.node.gru import GRU_Helper
    from onnx.backend.test.case.node.lstm import LSTM_Helper
except ImportError as reason:
    print(json.dumps({"unavailable": str(reason)}))
    sys.exit(0)


def product(graph, tensors):
    if graph.node[0].op_type == "DynamicQuantizeMatMul":
        x, w, scale, zero, bias = (tensors[name] for name in graph.node[0].input)
        return [x @ ((w.astype(np.float32) - zero) * scale) + bias]
    matmul, add = graph.node
    tensors[matmul.output[0]] = tensors[matmul.input[0]] @ tensors[matmul.input[1]]
    return [tensors[add.input[0]] + tensors[add.input[1]]]


def step(node, tensors):
    given = [tensors[name] if name else None for name in node.input]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    w, r = given[1], given[2]
    if node.op_type == "DynamicQuantizeLSTM":
        scales = given[8:12]
        w = ((w.astype(np.float32) - scales[1]) * scales[0]).transpose(0, 2, 1)
        r = ((r.astype(np.float32) - scales[3]) * scales[2]).transpose(0, 2, 1)
    assert r.shape[-1] == attributes["hidden_size"]
    parameters = {"X": given[0], "W": w, "R": r, "B": given[3], "initial_h": given[5]}
    if node.op_type == "GRU":
        parameters["linear_before_reset"] = attributes["linear_before_reset"]
        return [GRU_Helper(**parameters).step()[1]]
    return [LSTM_Helper(initial_c=given[6], **parameters).step()[1]]


def main():
    for line in sys.stdin:
        request = json.loads(line)
        model = onnx.load_from_string(base64.b64decode(request["model"]))
        onnx.checker.check_model(model, full_check=True)
        graph = model.graph
        tensors = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        for declared in graph.input:
            shape = [d.dim_value for d in declared.type.tensor_type.shape.dim]
            values = np.frombuffer(base64.b64decode(request["inputs"][declared.name]), "<f4")
            tensors[declared.name] = values.reshape(shape)
        recurrent = graph.node[0].op_type in ("LSTM", "GRU", "DynamicQuantizeLSTM")
        outputs = step(graph.node[0], tensors) if recurrent else product(graph, tensors)
        names = [o.name for o in graph.output]
        results = {n: base64.b64encode(o.astype("<f4").tobytes()).decode() for n, o in zip(names, outputs)}
        print(json.dumps({"outputs": results}), flush=True)


main()
