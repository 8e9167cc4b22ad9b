package models

import (
	"fmt"
	"strings"

	"github.com/cellmq/cellmq/cellrt"
)

// Weights returns how a backend stores and multiplies the model's weights:
// what its configuration says, float32 without, or what [Model.WithWeights]
// chose.
func (m *Model) Weights() cellrt.Weights { return m.program.Weights }

// WithWeights returns the same model with another weight type, and with it
// another program, which shares the cells. Requests that either unfolds belong
// to the one that unfolded them.
func (m *Model) WithWeights(w cellrt.Weights) *Model {
	out := *m
	out.program = m.program.WithWeights(w)
	return &out
}

// weightMark stands between a version and a weight type.
const weightMark = "+"

// Version returns the configuration's version, "1" when it has none, and
// behind it the weight type unless that is float32: "1+int8". Another weight
// type gives other results, so it is another version to clients.
func (m *Model) Version() string {
	if m.Weights() == cellrt.F32 {
		return m.version
	}
	return m.version + weightMark + m.Weights().String()
}

// oneWeightType says what values weights can have.
const oneWeightType = "one of f32, bf16, int8"

// weights returns the weight type that the configuration asks for, and checks
// that its version does not pretend to one.
func (c config) weights() (cellrt.Weights, error) {
	types := []cellrt.Weights{cellrt.F32, cellrt.BF16, cellrt.Int8}
	for _, w := range types {
		if strings.HasSuffix(c.Version, weightMark+w.String()) {
			return 0, &ConfigError{File: configFile, Field: "version", Err: fmt.Errorf("%q ends like the mark of a weight type", c.Version)}
		}
	}
	if c.Weights == "" {
		return cellrt.F32, nil
	}
	for _, w := range types {
		if c.Weights == w.String() {
			return w, nil
		}
	}
	return 0, &ConfigError{File: configFile, Field: "weights", Err: fmt.Errorf("%.32q, %s wanted", c.Weights, oneWeightType)}
}
