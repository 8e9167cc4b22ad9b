package broker

// tracker follows the leases of a request, so that the reader sees one stream
// without repetitions whatever happened to the workers: attempts of a request
// produce the same output, so what a later one repeats is cut off.
type tracker struct {
	epoch, attempt uint64
	begun          bool
	replays        bool // another lease came before
	nextSeq        uint64
	holes          int

	text int // bytes of text of the present lease so far
	// Of the request: what the reader has, and whether frames were lost, after
	// which positions in the text cannot be told any more.
	haveText, haveTokens int
	revision             int // of the next provisional frame, at least
	broken               bool
}

// accept reports whether f is news, and cuts off what the reader has.
func (t *tracker) accept(f *Frame) bool {
	if f.Type == FrameError && f.Epoch == 0 && f.Attempt == 0 {
		return true // a refusal, by no lease
	}
	newer := f.Epoch > t.epoch || f.Epoch == t.epoch && f.Attempt > t.attempt
	switch {
	case !t.begun || newer:
		t.replays = t.begun
		t.begun, t.epoch, t.attempt, t.nextSeq = true, f.Epoch, f.Attempt, 0
		t.text = 0
	case f.Epoch != t.epoch || f.Attempt != t.attempt:
		return false // of a lease that was lost
	case f.Seq < t.nextSeq && !f.Type.Terminal():
		return false // twice
	}
	if f.Seq > t.nextSeq {
		t.broken = true
		t.holes += int(min(f.Seq-t.nextSeq, 1<<20))
	}
	t.nextSeq = f.Seq + 1
	switch {
	case f.Type != FrameToken:
		return true
	case f.Provisional:
		return t.revise(f)
	}
	return t.cut(f)
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

// cut removes the tokens and the text that the reader has, and reports whether
// anything is left.
func (t *tracker) cut(f *Frame) bool {
	if len(f.Tokens) == 0 && f.Text == "" {
		return true
	}
	end := f.Index + len(f.Tokens)
	// A frame of text alone ends an output; of a replay the reader may have it.
	old := f.Index < t.haveTokens || t.replays && len(f.Tokens) == 0
	known := min(max(t.haveTokens-f.Index, 0), len(f.Tokens))
	if len(f.LogProbs) == len(f.Tokens) {
		f.LogProbs = f.LogProbs[known:]
	}
	f.Tokens, f.Index = f.Tokens[known:], f.Index+known
	if !t.broken {
		start := t.text
		t.text += len(f.Text)
		f.Text = f.Text[min(max(t.haveText-start, 0), len(f.Text)):]
	} else if old {
		f.Text = "" // where it continues cannot be told; the final has it all
	}
	t.haveTokens = max(t.haveTokens, end)
	t.haveText = max(t.haveText, t.text)
	return len(f.Tokens) > 0 || f.Text != ""
}
