package broker

import (
	"testing"

	"github.com/nats-io/nuid"
)

// TestTerminalFrameIsNeverOld has a server that forgot a delivery: the same
// lease starts again, and its terminal frame has a number that was seen.
func TestTerminalFrameIsNeverOld(t *testing.T) {
	t.Parallel()
	var tr tracker
	for i := range 5 {
		f := Frame{Type: FrameToken, Epoch: 1, Attempt: 1, Seq: uint64(i), Tokens: []int32{1}, Index: i, Text: "x"}
		if !tr.accept(&f, false) {
			t.Fatal("a new token is dropped")
		}
	}
	again := Frame{Type: FrameToken, Epoch: 1, Attempt: 1, Tokens: []int32{1}, Text: "x"}
	if tr.accept(&again, false) {
		t.Error("a token that was seen is taken")
	}
	for _, last := range []Frame{
		{Type: FrameFinal, Epoch: 1, Attempt: 1, Seq: 1, Final: &Final{}},
		{Type: FrameError, Epoch: 1, Attempt: 1, Seq: 1, Error: &Error{}},
	} {
		if !tr.accept(&last, false) {
			t.Errorf("a %s frame is dropped", last.Type)
		}
	}
}

// TestOneTerminalFrame has two workers with the same lease, both of which
// answer: the reader gets one terminal frame and each token once.
func TestOneTerminalFrame(t *testing.T) {
	t.Parallel()
	c := &Client{cfg: ClientConfig{QueueFrames: 8}, streams: map[string]*Stream{}, ids: idSource{nuid: nuid.New()}}
	s := newStream(c, "m", &RequestOptions{ID: "request1"})
	frames := []Frame{
		{Type: FrameToken, Seq: 0, Tokens: []int32{1}, Text: "x"},
		{Type: FrameToken, Seq: 1, Tokens: []int32{2}, Index: 1, Text: "y"},
		{Type: FrameFinal, Seq: 2, Text: "xy", Tokens: []int32{1, 2}, Final: &Final{}},
	}
	for i := range frames { // in turns, the second worker one frame behind
		first := frames[i]
		first.Epoch, first.Attempt = 1, 1
		s.push(first, false)
		if i > 0 {
			second := frames[i-1]
			second.Epoch, second.Attempt = 1, 1
			s.push(second, false)
		}
	}
	s.push(Frame{Type: FrameError, Epoch: 1, Attempt: 1, Seq: 3, Error: NewError(CodeInternal, "x")}, false)
	var text string
	var terminal int
	for f, err := range s.Frames() {
		switch {
		case err != nil:
			t.Fatal(err)
		case f.Type.Terminal():
			terminal++
		default:
			text += f.Text
		}
	}
	if text != "xy" || terminal != 1 {
		t.Errorf("streamed %q and %d terminal frames", text, terminal)
	}
}
