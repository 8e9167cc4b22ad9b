// Package onnx computes the cases with ONNX Runtime, through its C interface.
// Each case is a model of one or two nodes, encoded here: MatMul and Add for a
// product, the LSTM and GRU operators for a recurrent step, with constant
// weights that the runtime packs when it makes a session. With 8-bit weights a
// product is a DynamicQuantizeMatMul and an LSTM a DynamicQuantizeLSTM, two
// operators of the runtime's own; there is none for a GRU. The weights are then
// rounded here, with a scale per output.
//
// The runtime is a shared library that the environment variable
// ONNXRUNTIME_LIB names, or else libonnxruntime.so where the dynamic linker
// finds it. With the build tag onnxruntime the package can load it; without the
// tag, or without the library, it is reported as not available. The encoder is
// in every build.
package onnx
