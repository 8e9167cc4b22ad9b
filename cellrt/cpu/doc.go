// Package cpu is the CPU backend of [cellrt].
//
// # Loading
//
// [Backend.Load] compiles each cell into a list of steps, one for each
// operation, with its weights packed for the kernels. Two things are decided
// there. The weights of a recurrent operation are packed as one matrix over
// [x; h], so that a pre-activation is one chain. And where x is an embedding
// whose table is small, the chain's beginning - bias and input part - is
// computed for every row of the table at once and looked up later; a chain
// that was stored and continued has the same bits as one that was not.
//
// # Memory
//
//	arena     slots x Layout.Size() float32, one slot after the other
//	scratch   for each value of a cell: rows x stride, the stride being the
//	          width rounded up to whole panels; grows to the largest batch
//
//	rows -> gather (Load) -> scratch -> kernels -> scratch -> scatter (Store)
//
// The arena is shared by the executors; each has a runner with its own
// scratch. Rows in flight at the same time never write the same entries of a
// slot, which is the scheduler's and the graphs' promise.
//
// # Threads
//
// A runner with several threads cuts products into ranges of panels and
// everything else into ranges of rows. A chain is never cut, so the bits are
// those of one thread. Steps too small to be worth waking anybody are left to
// the caller.
//
// # Errors
//
// An argument outside a table, a field or a slot is a mistake in a graph and
// panics. Values that are not finite flow through to [cellrt.Greedy], which
// reports NaN for that row; other rows are not affected.
package cpu
