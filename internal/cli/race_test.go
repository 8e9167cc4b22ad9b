//go:build race

package cli_test

// raced: arithmetic is some ten times slower under the race detector.
const raced = true
