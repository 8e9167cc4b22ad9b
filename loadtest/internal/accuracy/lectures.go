package accuracy

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
)

// opening is how many bytes of a text a language model reads as its input.
const opening = 16

// lectures returns what the sequences of a model read: a language model the
// held-out text, cut in as many pieces; g2p-en, after a word of the test set,
// what it says to all of them with float32, beginning elsewhere for each.
func (o Options) lectures(ctx context.Context, b cellrt.Backend, m *models.Model) ([]lecture, error) {
	if m.Family() == models.FamilyLM {
		return o.textLectures()
	}
	cases, err := readCases[word](o, "models", "zoo", "testdata", "g2p-en.jsonl")
	if err != nil {
		return nil, err
	}
	spoken := make([][]int32, len(cases))
	err = serve(ctx, b, m.WithWeights(cellrt.F32), func(ctx context.Context, s *server) error {
		return s.all(ctx, len(cases), func(i int) (*models.Request, error) {
			return s.model.Unfold(models.Input{Text: cases[i].Input}, models.Params{})
		}, func(i int, _ *models.Request, out models.Output) {
			for _, t := range out.Tokens {
				spoken[i] = append(spoken[i], t.ID)
			}
		})
	})
	if err != nil {
		return nil, err
	}
	var out []lecture
	for s := range o.Sequences {
		first := s * len(cases) / o.Sequences
		l := lecture{input: cases[first].Input}
		for i := first; len(l.tokens) < o.Steps && i < first+len(cases); i++ {
			l.tokens = append(l.tokens, spoken[i%len(cases)]...)
		}
		if len(l.tokens) == 0 {
			return nil, fmt.Errorf("nothing is said to %q and what follows it", l.input)
		}
		out = append(out, l)
	}
	return out, nil
}

func (o Options) textLectures() ([]lecture, error) {
	text, err := os.ReadFile(filepath.Join(o.Root, "models", "testdata", "kjv-lm-valid.txt"))
	if err != nil {
		return nil, err
	}
	var out []lecture
	for s := range o.Sequences {
		piece := text[s*len(text)/o.Sequences : (s+1)*len(text)/o.Sequences]
		l := lecture{input: string(piece[:opening])}
		for _, c := range piece[opening:min(len(piece), opening+o.Steps)] {
			l.tokens = append(l.tokens, int32(c))
		}
		out = append(out, l)
	}
	return out, nil
}
