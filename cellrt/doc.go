// Package cellrt runs graphs of cells in batches.
//
// A request is a [Graph]: it unfolds, a little at a time, into nodes, each one
// use of a [Cell]. The runtime batches ready nodes of the same cell whoever
// they belong to and wherever they stand in their sequence (cellular batching:
// BatchMaker, EuroSys'18). A newcomer joins at the next step, a finished
// sequence leaves at once, and every row of a batch is a real node.
//
//	         Submit                                     Sink.Deliver
//	           |                                             ^
//	           v                                             |
//	arena  -- slot --> Sequence --- Graph.Start/Advance --- results
//	                      |              ^
//	                      v ready nodes  | outputs
//	Scheduler       encoder |5|4|3|2|    |
//	(under lock)    decoder |9|8|7|      |
//	                      |              |
//	 which cell, whose    |              |
//	 nodes, how far ahead v              |
//	                    Batch: rows (slot, args)
//	                      |              ^
//	Executor              v              |
//	(no lock)   gather state -> compute the cell -> scatter state
//	                      Runner of a Backend
//
// # Parts
//
// A [Program] says what a model computes: cells made with a [CellBuilder] over
// a [Layout] of per-sequence state. A [Backend] is a device's kernels and
// memory; it turns a program into an [Executable] with an arena. A [Scheduler]
// decides what runs together; it is a pure state machine. A [Runtime] drives
// it with executors and hands results to a [Sink].
//
// # Decisions
//
//	whom the next batch is for   turns        tenants in turn, as their debts allow
//	which of its cells           cellChoice   full, idle, oldest; takes turns before long
//	whose nodes are its rows     fairShare    tenants share the compute, everybody has a turn
//	how many batches at once     lookAhead    for cells whose results decide nothing
//	how large a batch            profile      the smallest that brings most of the throughput
//	how many steps, threads      [Shape]      changed while serving
//
// None of them has an influence on a result: a row's results depend on that
// row alone.
//
// # Concurrency
//
// One lock guards the scheduler, the sequences and their graphs. It is held
// for bookkeeping, never while a backend computes, so Submit and Cancel do not
// wait for a step. With several executors a sequence may have nodes in flight
// on more than one at a time; the graph decides which of its nodes are
// independent. A slot goes to another sequence only after the last node of its
// owner came back.
//
// # Checkpoints
//
// A sequence can report its progress every so many nodes, and once more when it
// is suspended: a [Checkpoint] is what its graph writes down, if it is
// [Resumable], and the entries of its slot that belong to it. It is taken under
// the lock, at a moment without nodes in flight, and another sequence, of
// whatever runtime, goes on from it with the same bits. Sequences without
// checkpoints pay one comparison a row.
//
// # Bounds
//
// Live sequences are bounded by the slots of their models, ready nodes by what
// their graphs push, tenants by live sequences. In the steady state a step
// allocates nothing. How long a ready node waits is bounded too: see
// [Scheduler].
package cellrt
