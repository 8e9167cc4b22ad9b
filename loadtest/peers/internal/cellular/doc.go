// Package cellular computes the cases with cellmq's own CPU backend, as a
// server would: a cell loads a row of the arena, computes, and stores the
// result to the arena. Gather and scatter are part of the time.
package cellular
