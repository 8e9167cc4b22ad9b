package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/cellmq/cellmq/loadtest/peers/internal/workload"
)

// Hello is the first line of a library's process.
type Hello struct {
	// Library is its name.
	Library string `json:"library"`
	// Version is its version and, where there are several, which kernels run.
	Version string `json:"version"`
	// Weights are the kinds of weights it has.
	Weights []workload.Weights `json:"weights"`
	// Unavailable is why the library cannot be had, empty if it can.
	Unavailable string `json:"unavailable"`
}

// Request asks for results or for times.
type Request struct {
	Case workload.Case `json:"case"`
	// At are the places of the results wanted; nil asks for times.
	At []int `json:"at"`
	// Duration is how long to measure, in nanoseconds.
	Duration int64 `json:"duration_ns"`
}

// Response is the answer to a [Request].
type Response struct {
	// Values are the results, four bytes each, little-endian.
	Values []byte `json:"values"`
	// Detail is how the library computes the case, if it says so.
	Detail string `json:"detail"`
	// Best and Median are the times of a call, in nanoseconds.
	Best   int64 `json:"best_ns"`
	Median int64 `json:"median_ns"`
	// Calls is how many were timed.
	Calls int `json:"calls"`
	// Unsupported is why the library has nothing for the case.
	Unsupported string `json:"unsupported"`
	// Error is what went wrong.
	Error string `json:"error"`
}

// ErrUnsupported is what a library returns for a case that it does not have.
var ErrUnsupported = errors.New("not supported")

// err returns the error that a response reports.
func (r Response) err() error {
	switch {
	case r.Unsupported != "":
		return fmt.Errorf("%w: %s", ErrUnsupported, r.Unsupported)
	case r.Error != "":
		return errors.New(r.Error)
	}
	return nil
}

// pack returns the bytes of values.
func pack(values []float32) []byte {
	out := make([]byte, 0, 4*len(values))
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(v))
	}
	return out
}

// unpack is the reverse of pack.
func unpack(bytes []byte) []float32 {
	out := make([]float32, len(bytes)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(bytes[4*i:]))
	}
	return out
}
