package models

import (
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/cellmq/cellmq/models/decode"
)

// The bounds of a class's name.
const maxLabelBytes = 64

// checkLabels checks the names of classes, which are the keys of a request's
// scores.
func checkLabels(labels []string) error {
	seen := make(map[string]bool, len(labels))
	for i, l := range labels {
		if l == "" || len(l) > maxLabelBytes || !utf8.ValidString(l) || seen[l] {
			return &ConfigError{File: configFile, Field: "labels", Err: fmt.Errorf(
				"label %d, %.64q, is empty, repeated, no UTF-8 or longer than %d bytes", i, l, maxLabelBytes)}
		}
		seen[l] = true
	}
	return nil
}

// classify returns the outcome of a request whose heads gave these logits by
// layer; those of a head that did not run are nil. The last layer's decide.
// When others ran too, ramps were asked for, and every layer has its say.
// Without logits the outcome is zero: the graph did not end by itself.
func classify(labels []string, logits [][]float32) Outcome {
	if logits == nil {
		return Outcome{}
	}
	last := len(logits) - 1
	decided := say(labels, logits[last])
	o := Outcome{Label: decided.Label, Scores: decided.Scores, Logits: logits}
	if slices.ContainsFunc(logits[:last], func(l []float32) bool { return l != nil }) {
		o.Layers = make([]Layer, 0, len(logits))
		for _, l := range logits[:last] {
			o.Layers = append(o.Layers, say(labels, l))
		}
		o.Layers = append(o.Layers, decided)
	}
	return o
}

// say returns what a head says with its logits: the label is the lowest of the
// largest logits, the scores are their softmax. Without logits it is zero.
func say(labels []string, logits []float32) Layer {
	if logits == nil {
		return Layer{}
	}
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	weights, sum := make([]float64, len(logits)), 0.0
	for i, v := range logits {
		weights[i] = decode.Exp(float64(v) - float64(logits[best]))
		sum += weights[i]
	}
	l := Layer{Label: labels[best], Scores: make([]Score, len(logits))}
	for i, w := range weights {
		l.Scores[i] = Score{Label: labels[i], Probability: float32(w / sum)}
	}
	return l
}
