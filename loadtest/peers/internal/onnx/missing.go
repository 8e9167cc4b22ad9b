//go:build !onnxruntime || !cgo

package onnx

import (
	"github.com/cellmq/cellmq/loadtest/peers/internal/wire"
)

// Open says that there is no library.
func Open(int) wire.Library {
	return wire.Missing{Name: "ONNX Runtime", Reason: "built without the tag onnxruntime, which the script sets where ONNXRUNTIME_LIB or libonnxruntime.so is found"}
}
