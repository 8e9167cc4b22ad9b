// Package cli is the command line: it reads arguments and the environment,
// builds a worker or a client from them, and shows what they say. It knows no
// more of them than their exported interface.
//
// A command writes its output to stdout and everything else to stderr, so
// that output can be piped. The exit code is 0 for success, 1 for a failure, 2
// for a command line that makes no sense, 3 for a dead letter of another model
// than the one at hand, and 130 for an interruption.
package cli
