// Package export brings PyTorch models to cellmq. It has no Go code: it is a
// folder of Python scripts, and the tests that run them against the real
// runtime where a Python with PyTorch is found.
//
//	families.py   each family as a PyTorch module, under the names cellmq reads
//	export.py     writes a model directory; asks PyTorch and cellmq the same
//	golden.py     the golden outputs, computed by PyTorch in float64
//	text.py       tokenizers, for the golden outputs
//	storage.py    the safetensors format, so that PyTorch is all that is needed
//	from_onnx.py  LSTM and GRU nodes of an ONNX file under PyTorch's names
//
//	state_dict, config.json, vocabularies --export.py--> model directory
//	                                                      | golden.jsonl
//	         worker: load, run golden outputs, serve <----+
//
// The golden outputs are those of the weights as they are stored, so they prove
// the import and not the rounding to F16 or BF16, and hold within 0.001.
// docs/models.md shows the modules as they stand here; a test keeps them equal
// and runs every Python example of that document.
package export
