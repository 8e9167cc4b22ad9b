package models

import (
	"fmt"
	"math"
	"slices"
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
		weights[i] = exponential(float64(v) - float64(logits[best]))
		sum += weights[i]
	}
	l := Layer{Label: labels[best], Scores: make([]Score, len(logits))}
	for i, w := range weights {
		l.Scores[i] = Score{Label: labels[i], Probability: float32(w / sum)}
	}
	return l
}

// exponential returns e^x for x <= 0, within 1e-11 relative, and 0 below -708.
// It is the one that package decode draws with, so that scores too have the
// same bits on every architecture: each product is rounded before it is added
// to, whatever the machine could fuse.
func exponential(x float64) float64 {
	const (
		ln2High = 0x1.62e42feep-1 // few bits: its small multiples are exact
		ln2Low  = 0x1.a39ef35793c76p-33
	)
	if x < -708 {
		return 0
	}
	n := math.RoundToEven(float64(x * (1 / math.Ln2)))
	r := x - float64(n*ln2High)
	r -= float64(n * ln2Low)
	p := float64(1.0/362880*r) + 1.0/40320 // 1/9! and 1/8!, and so on
	p = float64(p*r) + 1.0/5040
	p = float64(p*r) + 1.0/720
	p = float64(p*r) + 1.0/120
	p = float64(p*r) + 1.0/24
	p = float64(p*r) + 1.0/6
	p = float64(p*r) + 1.0/2
	y := float64(float64(r*r)*p) + r
	y++
	return float64(y * math.Float64frombits(uint64(int64(n)+1023)<<52))
}
