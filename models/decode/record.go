package decode

import (
	"math"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/internal/snapshot"
)

// leastChoice is the number of bytes that a choice has at least in a record.
const leastChoice = 5

// recordRoom is for how many bytes of a record there is room at once.
const recordRoom = 256

// Record makes the writer keep what it chooses, end tokens included: that is
// all that another writer with the same options needs to be where this one is.
// What it holds back, its sums and its draws follow from it, with the same bits.
func (w *Writer) Record() {
	if !w.recording {
		w.recording = true
		w.record = make([]byte, 0, recordRoom)
	}
}

// Save appends all choices since Record to dst.
func (w *Writer) Save(dst []byte) []byte {
	return append(snapshot.AppendInt(dst, w.count), w.record...)
}

// remember adds a choice to the record: its token, its log-probability, and the
// best candidates at its place if the output carries them.
func (w *Writer) remember(t cellrt.Token) {
	w.count++
	w.record = snapshot.AppendInt(w.record, int(t.ID))
	w.record = snapshot.AppendFloat(w.record, t.LogProb)
	for _, c := range t.Top {
		w.record = snapshot.AppendInt(w.record, int(c.ID))
		w.record = snapshot.AppendFloat(w.record, c.LogProb)
	}
}

// Recall makes the choices that Save wrote, in a new writer that records. It
// calls follow with each as if Take had returned it, and emits to f what Take
// did. A choice that the writer could not have made makes the reader fail; one
// that ends the output has finished f.
func (w *Writer) Recall(r *snapshot.Reader, f *cellrt.Frontier, follow func(token int32, next Next)) {
	for range r.Count(leastChoice) {
		t := cellrt.Token{ID: int32(r.Int(0, w.vocab-1)), LogProb: r.Float()}
		if t.ID != w.end {
			t.Top = w.recallTop(r)
		}
		if r.Failed() || math.IsNaN(float64(t.LogProb)) {
			r.Fail()
			return
		}
		token, next := w.accept(t, f)
		if next == Done {
			return
		}
		follow(token, next)
	}
}

// recallTop returns the best candidates at a choice's place.
func (w *Writer) recallTop(r *snapshot.Reader) []cellrt.Candidate {
	n := cap(w.ranks)
	if n == 0 || r.Failed() {
		return nil
	}
	start := w.room(n)
	for range n {
		w.top = append(w.top, cellrt.Candidate{ID: int32(r.Int(0, w.vocab-1)), LogProb: r.Float()})
	}
	return w.top[start:len(w.top):len(w.top)]
}
