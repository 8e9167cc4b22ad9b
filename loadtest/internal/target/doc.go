// Package target is what a load test is aimed at: workers that run already, or
// one that it starts.
//
// [Start] starts a worker in a process of its own, with the embedded server and a
// temporary directory, so that the processor time of the load test is its own.
// [Served] asks the workers which models they serve, and [Look] tries what a model
// reads and whether it generates, since the wire does not say.
package target
