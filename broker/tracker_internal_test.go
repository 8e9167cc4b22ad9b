package broker

import "testing"

// TestTerminalFrameIsNeverOld has a server that forgot a delivery: the same
// lease starts again, and its terminal frame has a number that was seen.
func TestTerminalFrameIsNeverOld(t *testing.T) {
	t.Parallel()
	var tr tracker
	for i := range 5 {
		f := Frame{Type: FrameToken, Epoch: 1, Attempt: 1, Seq: uint64(i), Tokens: []int32{1}, Index: i, Text: "x"}
		if !tr.accept(&f) {
			t.Fatal("a new token is dropped")
		}
	}
	again := Frame{Type: FrameToken, Epoch: 1, Attempt: 1, Tokens: []int32{1}, Text: "x"}
	if tr.accept(&again) {
		t.Error("a token that was seen is taken")
	}
	for _, last := range []Frame{
		{Type: FrameFinal, Epoch: 1, Attempt: 1, Seq: 1, Final: &Final{}},
		{Type: FrameError, Epoch: 1, Attempt: 1, Seq: 1, Error: &Error{}},
	} {
		if !tr.accept(&last) {
			t.Errorf("a %s frame is dropped", last.Type)
		}
	}
}
