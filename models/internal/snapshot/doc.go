// Package snapshot writes numbers down and reads them back from bytes that
// nobody vouches for. The progress of a request's graph is kept in this form.
//
// Whole numbers are unsigned varints, float32 values their bits in little
// endian. Writing is appending to a slice; a [Reader] has bounds for all it
// reads, allocates nothing, and remembers that something was wrong, so that it
// is asked once, at the end.
package snapshot
