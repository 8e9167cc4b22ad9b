// Package runner runs requests of one model on a runtime and a CPU backend of
// its own, for tests and tools: callers get whole outputs, and as many of them
// run at once as there are slots.
package runner
