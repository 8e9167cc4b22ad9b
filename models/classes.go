package models

import (
	"fmt"
	"math"
	"unicode/utf8"
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
// layer; the last layer's decide. The label is the lowest of the largest
// logits, the scores are their softmax. Without logits it is zero: the graph
// did not end by itself.
func classify(labels []string, logits [][]float32) Outcome {
	if logits == nil {
		return Outcome{}
	}
	last := logits[len(logits)-1]
	best := 0
	for i, v := range last {
		if v > last[best] {
			best = i
		}
	}
	sum := 0.0
	for _, v := range last {
		sum += math.Exp(float64(v) - float64(last[best]))
	}
	o := Outcome{Label: labels[best], Scores: make([]Score, len(last)), Logits: logits}
	for i, v := range last {
		o.Scores[i] = Score{Label: labels[i], Probability: float32(math.Exp(float64(v)-float64(last[best])) / sum)}
	}
	return o
}
