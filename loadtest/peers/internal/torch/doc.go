// Package torch has the program that computes the cases with PyTorch, in
// Python: torch.nn.functional.linear and the LSTMCell and GRUCell modules in
// inference mode, as a server written in Python would call them, so the cost
// of a call from Python is part of the time. With 8-bit weights they are
// PyTorch's dynamically quantised modules, with bfloat16 weights the same
// functions after a conversion of the inputs.
//
// The program speaks the lines of JSON of package wire. It says that PyTorch is
// not available where Python cannot import it.
package torch
