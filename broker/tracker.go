package broker

// tracker follows the leases of a request, so that the reader sees one output
// without gaps and repetitions whatever happened to the workers and on the way:
// it lets through what continues the output and nothing else. The rules are the
// protocol's; testdata/tracker.jsonl has them as cases for any client.
//
// They rest on two facts. Attempts of a request produce the same output. And the
// text of the first n tokens is the same in whatever frames they come, but for
// the end of an output, where text may follow that waited. So the place of a
// frame's text is known when its index is 0, when it continues what came of its
// lease, or when it continues what the reader has. Text at the end that comes
// without tokens may be a repetition or not; it is left to the final frame, which
// is next and has it.
type tracker struct {
	epoch, attempt uint64
	begun          bool
	late           bool // what came before the first frame is not lost
	whole          bool // the reader wants the terminal frame and no other
	nextSeq        uint64
	holes          int

	// Of the present lease: what has come without a gap.
	leaseTokens, leaseText int
	// Of the request: what the reader has, in tokens and in bytes of text, and
	// how many tokens are known to exist.
	haveTokens, haveText int
	seenTokens           int
	revision             int // of the next provisional frame, at least
}

// hole reports whether there is output that the reader cannot get yet.
func (t *tracker) hole() bool { return t.seenTokens > t.haveTokens }

// accept reports whether f is news, and cuts off what the reader has. A stored
// frame was read back and is of any lease.
func (t *tracker) accept(f *Frame, stored bool) bool {
	switch {
	case f.Type == FrameError && f.Epoch == 0 && f.Attempt == 0:
		return true // a refusal, by no lease
	case stored:
		return f.Type.Terminal() || f.Type == FrameToken && !f.Provisional && t.place(f, true)
	case !t.inLease(f):
		return false
	}
	if f.Seq > t.nextSeq {
		t.holes += int(min(f.Seq-t.nextSeq, 1<<20))
	}
	t.nextSeq = max(t.nextSeq, f.Seq+1)
	switch {
	case f.Type != FrameToken:
		return true
	case f.Provisional:
		return t.revise(f)
	}
	return t.place(f, false)
}

// inLease reports whether f is a new frame of the present lease, or begins one.
func (t *tracker) inLease(f *Frame) bool {
	newer := f.Epoch > t.epoch || f.Epoch == t.epoch && f.Attempt > t.attempt
	switch {
	case !t.begun || newer:
		t.nextSeq = 0
		if !t.begun && t.late {
			t.nextSeq = f.Seq
		}
		t.begun, t.epoch, t.attempt = true, f.Epoch, f.Attempt
		t.leaseTokens, t.leaseText = 0, 0
		return true
	case f.Epoch != t.epoch || f.Attempt != t.attempt:
		return false // of a lease that was lost
	}
	cumulative := f.Type == FrameToken && !f.Provisional && f.Index == 0
	return f.Seq >= t.nextSeq || f.Type.Terminal() || cumulative // else it comes twice
}

// revise reports whether a provisional text is newer than the one before, and
// than the output: attempts of a search number what they propose alike.
func (t *tracker) revise(f *Frame) bool {
	if f.Revision < t.revision || t.haveTokens > 0 {
		return false
	}
	t.revision = f.Revision + 1
	return true
}

// place removes the tokens and the text that the reader has, and reports
// whether anything is left. A frame behind a gap is dropped.
func (t *tracker) place(f *Frame, stored bool) bool {
	if f.Index < 0 || len(f.Tokens) == 0 {
		return false
	}
	end := f.Index + len(f.Tokens)
	t.seenTokens = max(t.seenTokens, end)
	start, ok := t.offset(f)
	if !ok {
		return false
	}
	stop := start + len(f.Text)
	if !stored && end >= t.leaseTokens {
		t.leaseTokens, t.leaseText = end, max(t.leaseText, stop)
	}
	known := min(t.haveTokens-f.Index, len(f.Tokens))
	if len(f.LogProbs) == len(f.Tokens) {
		f.LogProbs = f.LogProbs[known:]
	}
	f.Tokens, f.Index = f.Tokens[known:], f.Index+known
	f.Text = f.Text[min(t.haveText-start, len(f.Text)):]
	t.haveTokens, t.haveText = max(t.haveTokens, end), max(t.haveText, stop)
	return len(f.Tokens) > 0 || f.Text != ""
}

// offset returns where the text of a token frame starts in that of the output,
// never behind what the reader has; ok is false when that cannot be told.
func (t *tracker) offset(f *Frame) (start int, ok bool) {
	switch f.Index {
	case 0:
		return 0, true
	case t.leaseTokens:
		return t.leaseText, true
	case t.haveTokens:
		return t.haveText, true
	}
	return 0, false
}

// rest returns what a final frame has of the output and the reader has not, as
// a token frame; ok is false when that is nothing.
func (t *tracker) rest(f *Frame) (r Frame, ok bool) {
	if t.whole || f.Type != FrameFinal {
		return Frame{}, false
	}
	from := min(t.haveTokens, len(f.Tokens))
	r = Frame{
		Type: FrameToken, ID: f.ID, Epoch: f.Epoch, Attempt: f.Attempt, Seq: f.Seq,
		Tokens: f.Tokens[from:], Index: from, Text: f.Text[min(t.haveText, len(f.Text)):],
	}
	if len(f.LogProbs) == len(f.Tokens) {
		r.LogProbs = f.LogProbs[from:]
	}
	t.haveTokens, t.haveText = max(t.haveTokens, len(f.Tokens)), max(t.haveText, len(f.Text))
	return r, len(r.Tokens) > 0 || r.Text != ""
}
