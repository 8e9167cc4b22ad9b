package cli

import (
	"strings"
	"testing"

	"github.com/cellmq/cellmq/broker"
)

// TestTextOutput gives the frames of a request and wants the text to print.
func TestTextOutput(t *testing.T) {
	t.Parallel()
	token := func(text string) broker.Frame { return broker.Frame{Type: broker.FrameToken, Text: text} }
	final := func(text string) broker.Frame {
		return broker.Frame{Type: broker.FrameFinal, Text: text, Final: &broker.Final{}}
	}
	best := final("ab")
	best.Final.Alternatives = []broker.Alternative{{Text: "ab", LogProb: -0.5}, {Text: "c", LogProb: -2}}
	label := final("")
	label.Final.Label, label.Final.Scores = "en", []broker.Score{{Label: "de", Value: 0.25}, {Label: "en", Value: 0.75}}
	layers := label
	layers.Final = &broker.Final{Label: "en", Scores: label.Final.Scores, Layers: []broker.Layer{
		{Label: "de", Scores: []broker.Score{{Label: "de", Value: 0.5}, {Label: "en", Value: 0.5}}},
		{},
		{Label: "en", Scores: label.Final.Scores},
	}}
	cases := []struct {
		name   string
		whole  bool
		frames []broker.Frame
		want   string
	}{
		{"deltas", false, []broker.Frame{token("a"), token(""), token("b"), final("ab")}, "ab"},
		{"rest in the final", false, []broker.Frame{token("a"), final("abc")}, "abc"},
		{"lost frames", false, []broker.Frame{token("a"), token("c"), final("abc")}, "ac\nabc"},
		{"only a final", false, []broker.Frame{final("abc")}, "abc"},
		{"search", true, []broker.Frame{token("ab"), final("ab")}, "ab"},
		{"best of a search", true, []broker.Frame{token("ab"), best}, "-0.5000  ab\n-2.0000  c"},
		{"best of a payload's search", false, []broker.Frame{token("ab"), best}, "ab\n-0.5000  ab\n-2.0000  c"},
		{"label", false, []broker.Frame{label}, "en  0.7500"},
		{"label of each layer", false, []broker.Frame{layers}, "de  0.5000\n-\nen  0.7500"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o, got := &textOutput{whole: tc.whole}, ""
			for i := range tc.frames {
				got += o.add(&tc.frames[i])
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestDrafts wants drafts of the first open place only, in one line of the
// screen, and nothing left of them behind output and messages.
func TestDrafts(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := newPrinter(&out, 4)
	p.width = 10
	first, err := p.place(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second, err := p.place(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, do := range []func() error{
		func() error { return first.draft("a\nb") },
		func() error { return second.draft("unseen") },
		func() error { return first.draft("0123456789abc") },
		func() error { return first.write("done") },
		func() error { return first.end("\n") },
		func() error { return second.draft("seen") },
		func() error { p.clear(); return nil },
		func() error { return second.draft("again") },
		func() error { return second.end("\n") },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	want := "a b" + eraseLine + "…56789abc" + eraseLine + "done" + "\n" + "seen" + eraseLine + "again" + eraseLine + "\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

// TestBoardTakesBackDrafts wants the output of a search in the place of its
// provisional texts, and one line for a text of several.
func TestBoardTakesBackDrafts(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	b := newBoard(&out, []string{"x"})
	for _, f := range []broker.Frame{
		{Type: broker.FrameAccepted},
		{Type: broker.FrameToken, Text: "ab", Provisional: true},
		{Type: broker.FrameToken, Text: "c", Provisional: true},
		{Type: broker.FrameToken, Text: "d\n"},
		{Type: broker.FrameToken, Text: "e"},
	} {
		b.show(0, &f)
	}
	if want := "  x  ab\n  x  c\n  x  d \n  x  d e\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestCutShortFails(t *testing.T) {
	t.Parallel()
	for reason, fails := range map[broker.FinishReason]bool{
		broker.FinishStop: false, broker.FinishLength: false,
		broker.FinishCancelled: true, broker.FinishDeadline: true, broker.FinishClientGone: true,
	} {
		f := broker.Frame{Type: broker.FrameFinal, Final: &broker.Final{FinishReason: reason}}
		if err := cutShort(&f); (err != nil) != fails {
			t.Errorf("%s: %v", reason, err)
		}
	}
	if err := cutShort(&broker.Frame{Type: broker.FrameToken}); err != nil {
		t.Error(err)
	}
}
