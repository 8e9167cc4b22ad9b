// Package manual is what the commands say of themselves: the help that they print
// and the reference pages in docs, which are made of the same text.
//
// A command has its text, examples and flags as usual. What else a manual page has,
// the environment and the exit codes, are [Notes], which a command takes over from
// the one above it ([Attach]). [Page] writes the help of a whole tree as Markdown, and [Faults] finds commands
// whose help has gaps and examples that the command line would refuse; tests keep
// both as they should be.
package manual
