// Package safetensors reads and writes the safetensors file format for the
// storage types F32, F16 and BF16.
//
//	8 bytes   length n of the header, little-endian
//	n bytes   JSON: {"name": {"dtype", "shape", "data_offsets"}, ...}
//	          and optionally "__metadata__": {string: string}
//	the rest  the tensors' values, little-endian, without gaps
//
// A file is untrusted: everything the header claims is checked before any of
// it is used. The header is read token by token, never into nested values of
// its own making; every tensor must have the byte length that its type and
// shape imply, and together the tensors must cover the values exactly, so no
// two overlap. What is wrong is reported as a [FormatError]. Reading allocates
// a small multiple of the header; values are converted to float32 only when
// asked for.
package safetensors
