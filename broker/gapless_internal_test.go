package broker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// recording is an output, and the frames of several leases that produce it.
type recording struct {
	tokens []int32
	texts  []int // texts[n] bytes of text belong to the first n tokens
	text   string
	leases [][]Frame
}

// newRecording makes a recording out of choices: next returns a number below n.
func newRecording(next func(n int) int) *recording {
	r := &recording{texts: []int{0}}
	for i := range 1 + next(12) {
		r.tokens = append(r.tokens, int32(100+i))
		r.text += []string{"", "a", "é", "xyz"}[next(4)] // none: it waits
		r.texts = append(r.texts, len(r.text))
	}
	r.text += []string{"", "", "z", "zz"}[next(4)] // what waited at the end
	attempt := uint64(1)
	for range 1 + next(4) {
		r.leases = append(r.leases, r.lease(attempt, next))
		if next(3) > 0 { // else two workers have the same lease
			attempt++
		}
	}
	return r
}

// lease returns the frames of an attempt, terminal frame included.
func (r *recording) lease(attempt uint64, next func(n int) int) []Frame {
	var fs []Frame
	add := func(f Frame) {
		f.ID, f.Epoch, f.Attempt, f.Seq = "request1", 1, attempt, uint64(len(fs))
		fs = append(fs, f)
	}
	add(Frame{Type: FrameAccepted})
	together := next(2) == 0 // the end comes with the last tokens
	for from := 0; from < len(r.tokens); {
		to := min(from+1+next(4), len(r.tokens))
		end := r.texts[to]
		if together && to == len(r.tokens) {
			end = len(r.text)
		}
		add(Frame{Type: FrameToken, Index: from, Tokens: r.tokens[from:to], Text: r.text[r.texts[from]:end]})
		switch next(6) {
		case 0:
			add(Frame{Type: FrameHeartbeat})
		case 1:
			add(r.cumulative(to, false))
		}
		from = to
	}
	if rest := r.text[r.texts[len(r.tokens)]:]; !together && rest != "" {
		add(Frame{Type: FrameToken, Index: len(r.tokens), Text: rest})
	}
	add(Frame{Type: FrameFinal, Text: r.text, Tokens: r.tokens, Final: &Final{}})
	return fs
}

// cumulative is the output of the first n tokens, or all of it with its end.
func (r *recording) cumulative(n int, end bool) Frame {
	text := r.texts[n]
	if end {
		n, text = len(r.tokens), len(r.text)
	}
	return Frame{Type: FrameToken, ID: "request1", Epoch: 1, Attempt: 1, Tokens: r.tokens[:n], Text: r.text[:text]}
}

// reader checks what it gets of a recording.
type reader struct {
	r        *recording
	s        *Stream
	text     string
	tokens   []int32
	terminal int
}

func (rd *reader) get(f Frame, stored bool) error {
	f.Tokens = slices.Clone(f.Tokens)
	rd.s.push(f, stored)
	return rd.read()
}

func (rd *reader) read() error {
	for _, f := range rd.s.drain() {
		switch {
		case rd.terminal > 0:
			return fmt.Errorf("a %s frame after the terminal one", f.Type)
		case f.Type.Terminal():
			rd.terminal++
		case f.output():
			if f.Index != len(rd.tokens) {
				return fmt.Errorf("index %d after %d tokens", f.Index, len(rd.tokens))
			}
			rd.tokens, rd.text = append(rd.tokens, f.Tokens...), rd.text+f.Text
		}
	}
	n := len(rd.tokens)
	if !strings.HasPrefix(rd.r.text, rd.text) || n > len(rd.r.tokens) || !slices.Equal(rd.tokens, rd.r.tokens[:n]) {
		return fmt.Errorf("%q %v is no beginning of %q %v", rd.text, rd.tokens, rd.r.text, rd.r.tokens)
	}
	return nil
}

// unreliable plays a recording over a network that loses, repeats and reorders
// frames, and leases that overlap. read says whether the reader looks after
// every frame or only in the end.
func unreliable(next func(n int) int, queue int, lazy bool) error {
	r := newRecording(next)
	rd := &reader{r: r, s: testStream(&RequestOptions{}, queue)}
	give := rd.get
	if lazy {
		give = func(f Frame, stored bool) error {
			f.Tokens = slices.Clone(f.Tokens)
			rd.s.push(f, stored)
			return nil
		}
	}
	for l, frames := range r.leases {
		last := l == len(r.leases)-1
		for i := range frames {
			f := frames[i]
			if f.Type.Terminal() && (!last || i < len(frames)-1) {
				break // lost with its worker
			}
			var err error
			switch {
			case f.Type.Terminal(): // arrives
			case next(8) == 0: // lost
				continue
			case next(8) == 0: // overtaken
				err = give(frames[min(i+1, len(frames)-2)], false)
			case next(8) == 0: // one of before once more, of any lease
				before := r.leases[next(l+1)]
				err = give(before[next(min(i+1, len(before)-1))], false)
			case next(8) == 0: // read back
				err = give(r.cumulative(next(len(r.tokens)+1), next(8) == 0), true)
			}
			if err == nil {
				err = give(f, false)
			}
			if err != nil {
				return err
			}
		}
	}
	if err := give(r.leases[0][0], false); err != nil { // too late
		return err
	}
	if err := rd.read(); err != nil {
		return err
	}
	if rd.text != r.text || !slices.Equal(rd.tokens, r.tokens) || rd.terminal != 1 {
		return fmt.Errorf("%q %v, %d terminal frames, want %q %v", rd.text, rd.tokens, rd.terminal, r.text, r.tokens)
	}
	return nil
}

// TestGapless wants the output without gap and repetition, and one terminal
// frame, whatever happens on the way.
func TestGapless(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20_000) {
		random := rand.New(rand.NewPCG(seed, 1))
		queue := []int{1, 2, 1000}[seed%3]
		if err := unreliable(random.IntN, queue, seed%2 == 0); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// FuzzTracker is TestGapless with the choices taken from data.
func FuzzTracker(f *testing.F) {
	f.Add([]byte{3, 1, 2, 0, 1, 3, 2}, false)
	f.Add([]byte("the quick brown fox jumps over the lazy dog"), true)
	f.Fuzz(func(t *testing.T, data []byte, lazy bool) {
		next := func(n int) int {
			if len(data) == 0 {
				return n - 1
			}
			b := data[0]
			data = data[1:]
			return int(b) % n
		}
		if err := unreliable(next, 3, lazy); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzTrackerOfAnything has frames that no worker sends: the reader's place
// stays consistent.
func FuzzTrackerOfAnything(f *testing.F) {
	f.Add(uint64(1), uint64(1), 3, "text", uint8(2), false, false)
	f.Fuzz(func(t *testing.T, attempt, seq uint64, index int, text string, tokens uint8, provisional, stored bool) {
		s := testStream(&RequestOptions{}, 2)
		s.track.haveTokens, s.track.haveText = 2, 1
		for i := range uint64(3) {
			s.push(Frame{
				Type: FrameToken, Epoch: 1, Attempt: attempt, Seq: seq + i, Index: index, Text: text,
				Tokens: make([]int32, tokens), Provisional: provisional,
			}, stored)
			if tr := &s.track; tr.leaseTokens > tr.haveTokens || tr.leaseText > tr.haveText || tr.haveTokens < 0 {
				t.Fatalf("%+v", *tr)
			}
		}
		s.push(Frame{Type: FrameFinal, Attempt: attempt, Epoch: 1, Text: text, Tokens: make([]int32, tokens), Final: &Final{}}, stored)
	})
}
