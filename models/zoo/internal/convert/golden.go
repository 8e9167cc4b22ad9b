package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// nameWeights has the golden outputs of a model's directory name its weights.
func nameWeights(dir string) error {
	weights, err := os.ReadFile(filepath.Join(dir, weightsFile))
	if err != nil {
		return err
	}
	golden, err := os.ReadFile(filepath.Join(dir, goldenFile))
	if err != nil {
		return err
	}
	named, err := withWeights(golden, weights)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, goldenFile), err)
	}
	return replace(filepath.Join(dir, goldenFile), named)
}

// withWeights returns lines of JSON objects with the SHA-256 of the weights behind
// the last key of each. All other bytes stay as they are.
func withWeights(lines, weights []byte) ([]byte, error) {
	const key = "weights_sha256"
	var out bytes.Buffer
	n := 0
	for line := range bytes.Lines(lines) {
		n++
		line = bytes.TrimSpace(line)
		var keys map[string]json.RawMessage
		if err := json.Unmarshal(line, &keys); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if _, ok := keys[key]; ok {
			return nil, fmt.Errorf("line %d: %s is there", n, key)
		}
		if len(keys) == 0 {
			return nil, fmt.Errorf("line %d: an object with keys wanted", n)
		}
		fmt.Fprintf(&out, "%s,%q:\"%x\"}\n", bytes.TrimSuffix(line, []byte("}")), key, sha256.Sum256(weights))
	}
	return out.Bytes(), nil
}
