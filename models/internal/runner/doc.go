// Package runner runs requests of one or more models on a runtime and a CPU
// backend of its own, for tests and tools: callers get whole outputs, and as
// many requests of a model run at once as it has slots.
package runner
