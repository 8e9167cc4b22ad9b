// Package cpu is the CPU backend of [cellrt].
//
// # Loading
//
// [Backend.Load] compiles each cell into a list of steps, one for each
// operation, with its weights packed for the kernels of one instruction tier
// (see [Tiers]) in the program's weight type. Three things are decided there.
//
// The weights of a recurrent operation are packed so that the gates of a group
// of units lie side by side. A piece of a step is then such a group: the
// product of its input part, that of its recurrent part, the gates, and the new
// states of its units, for all rows. Pre-activations exist only in a block as
// wide as a group.
//
//	             group 0                  group 1
//	columns   i i.. f f.. g g.. o o..  i i.. f f.. g g.. o o..      LSTM
//	          nx..  r..   z..                                       GRU, input
//	                r..   z..   nh..                                GRU, state
//
// New states go straight to the sequences' slots where the cell stores them
// and nothing in between could tell the difference: fuse.go says when that is.
//
// Where the input is an embedding whose table is small, the beginning of the
// chains - bias and input part - is computed for every row of the table at
// once and looked up later; a chain that was stored and continued has the same
// bits as one that was not.
//
// # Memory
//
//	arena     slots x Layout.Size() float32, one slot after the other
//	scratch   for each value of a cell: rows x stride, the stride being the
//	          width rounded up to whole panels, but no multiple of 2 KiB;
//	          grows to the largest batch
//	own       for each thread: the block of a group's pre-activations, or the
//	          scores of an attention
//	inputs    for each value that products read: its 8-bit codes, if the
//	          weights have such; made once a batch, read by all products
//
//	rows -> gather (Load) -> scratch -> products -> own -> gates -> slots
//	                            ^                             |
//	                            +-----------------------------+
//
// Weights are blocks: packed matrices, biases, embedding tables, folded tables.
// A backend knows its blocks by a SHA-256 of what they are made from (format,
// order of panels, values), so that programs that it has loaded hold equal
// weights once: versions of a model that differ in one matrix take the memory of
// one, and that matrix. It knows them by weak pointers: a block goes with the
// last executable that holds it. Hashing costs about what packing does, 0.3
// seconds for 100 million weights on a core with SHA instructions, and what is
// found need not be packed. Nothing of the program's own memory is kept.
//
// The arena is shared by the executors; each has a runner with its own
// scratch. Rows in flight at the same time never write the same entries of a
// slot, which is the scheduler's and the graphs' promise. Loads are copies, so
// that a row can be written while the rest of its old state is still read.
//
// # Threads
//
// A runner with several threads cuts a step into parts: ranges of groups of
// units, of panels, or of rows. A chain is never cut, so the bits are those of
// one thread. Helpers stay awake for a moment after a batch, because waking
// one takes some 50 microseconds and a whole step often less; batches that are
// too small to be worth it are left to the caller.
//
// # Errors
//
// An argument outside a table, a field or a slot is a mistake in a graph and
// panics. Values that are not finite flow through to [cellrt.Greedy], which
// reports NaN for that row; other rows are not affected.
package cpu
