//go:build race

package registry_test

// raced: the race detector needs several times the memory.
const raced = true
