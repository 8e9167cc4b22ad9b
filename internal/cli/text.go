package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/cellmq/cellmq/broker"
)

// textOutput turns the frames of a request into the text to print: the deltas of
// token frames, and from the final whatever of the output they left out; the
// label of a classification, or of each of its layers; or the best hypotheses
// of a search.
type textOutput struct {
	whole   bool // nothing is printed before the final, as for a search
	printed strings.Builder
}

// add returns what a frame adds.
func (o *textOutput) add(f *broker.Frame) string {
	text := ""
	switch {
	case f.Type == broker.FrameToken && !o.whole:
		text = f.Text
	case f.Type == broker.FrameFinal && len(f.Final.Alternatives) > 0:
		text = alternatives(f.Final.Alternatives)
		if o.printed.Len() > 0 {
			text = "\n" + text
		}
	case f.Type == broker.FrameFinal && len(f.Final.Layers) > 0:
		text = layers(f.Final.Layers)
	case f.Type == broker.FrameFinal && f.Final.Label != "":
		text = classification(f.Final.Label, f.Final.Scores)
	case f.Type == broker.FrameFinal:
		rest, continues := strings.CutPrefix(f.Text, o.printed.String())
		switch {
		case continues:
			text = rest
		default: // token frames were lost in between: the final is what counts
			text = "\n" + f.Text
		}
	}
	o.printed.WriteString(text)
	return text
}

// alternatives returns a line for each hypothesis: its log-probability and text.
func alternatives(all []broker.Alternative) string {
	lines := make([]string, len(all))
	for i, a := range all {
		lines[i] = fmt.Sprintf("%.4f  %s", a.LogProb, a.Text)
	}
	return strings.Join(lines, "\n")
}

// classification returns a label and its probability.
func classification(label string, scores []broker.Score) string {
	for _, s := range scores {
		if s.Label == label {
			return fmt.Sprintf("%s  %.4f", label, s.Value)
		}
	}
	return label
}

// layers returns a line for each layer of a classifier: what it says, or a dash
// for one without a ramp.
func layers(all []broker.Layer) string {
	lines := make([]string, len(all))
	for i, l := range all {
		lines[i] = cmp.Or(classification(l.Label, l.Scores), "-")
	}
	return strings.Join(lines, "\n")
}
