package cpu

import (
	"time"

	"github.com/cellmq/cellmq/cellrt/cpu/internal/kernel"
)

const (
	// partsPerThread bounds the parts of a step: more than one for each thread,
	// so that one that comes late still finds something, and so that what is
	// left when one thread has run out of work is little.
	partsPerThread = 8
	// partsPerSplit is how many parts there are at least in the least work that
	// threads share: a part is then some 5 microseconds.
	partsPerSplit = 2
	// wakeFactor is how much more work it takes to wake threads than to share
	// with those that are awake.
	wakeFactor = 15
	// fewRows is how many rows take as long as one, because the time is that of
	// the weights on their way from memory.
	fewRows = 4
	// portableFactor is how many multiplications of a vector unit take the time
	// of one without.
	portableFactor = 50
	// activationWork is how many multiplications an activation is worth, and
	// copyWork a value copied or converted.
	activationWork = 16
	copyWork       = 4
)

// split decides which batches are shared by threads, and in how many parts.
type split struct {
	least  int // work that is worth sharing
	factor int // what a multiplication counts

	worth  bool      // this batch is worth sharing between threads that are awake
	shared bool      // helpers take part in it
	last   time.Time // when a batch ended that was worth sharing
}

func newSplit(least int, t *kernel.Table) split {
	s := split{least: least, factor: 1}
	if t.Name == "purego" {
		s.factor = portableFactor
	}
	return s
}

// decide settles whether helpers take part in a batch, from what the cell says
// of a row's work. Those that are parked are woken for a large batch, and for
// any when batches follow each other so fast that they will stay awake.
func (s *split) decide(work int64, rows int, t *team) {
	s.worth, s.shared = false, false
	if t.threads() == 1 {
		return
	}
	total := min(work, maxWork) * int64(max(rows, fewRows)*s.factor)
	if s.worth = total >= int64(s.least); s.worth {
		s.shared = total >= wakeFactor*int64(s.least) || t.awake() || time.Since(s.last) < t.spin
	}
}

// ended notes that the batch is done.
func (s *split) ended() {
	if s.worth {
		s.last = time.Now()
	}
}

// maxWork keeps products of it from overflowing.
const maxWork = int64(1) << 40

// parts returns in how many parts to do work of so many multiplications, of
// which pieces are the smallest units.
func (b *batch) parts(work int64, pieces int) int {
	if !b.split.shared {
		return 1
	}
	least := int64(max(1, b.split.least/partsPerSplit))
	worth := work * int64(b.split.factor) / least
	return max(1, int(min(worth, int64(pieces), int64(partsPerThread*b.team.threads()))))
}

// span returns the pieces of a part.
func span(pieces, part, parts int) (from, to int) {
	return pieces * part / parts, pieces * (part + 1) / parts
}

// piecewise is a step whose work consists of pieces that can be done at the
// same time: rows, panels, or groups of units. The thread's number selects
// scratch.
type piecewise interface {
	pieces(b *batch, thread, from, to int)
}

// job is a piecewise step for the team.
type job struct {
	batch  *batch
	step   piecewise
	pieces int
}

func (j *job) part(thread, i, parts int) {
	from, to := span(j.pieces, i, parts)
	j.step.pieces(j.batch, thread, from, to)
}

// do does all pieces of a step, work being that of all of them.
func (b *batch) do(s piecewise, pieces int, work int64) {
	parts := b.parts(work, pieces)
	if parts == 1 {
		s.pieces(b, 0, 0, pieces)
		return
	}
	b.job = job{batch: b, step: s, pieces: pieces}
	b.team.do(&b.job, parts)
}

// eachRow does a step whose pieces are rows, work being that of one.
func (b *batch) eachRow(s piecewise, work int) { b.do(s, len(b.rows), int64(work)*int64(len(b.rows))) }

// product is the work of a product, for [batch.do].
func (b *batch) product(weights int) int64 { return int64(weights) * int64(max(len(b.rows), fewRows)) }
