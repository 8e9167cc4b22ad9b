package accuracy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"

	"github.com/cellmq/cellmq/models"
)

// sheet is what a model with one weight type answered to one test set.
type sheet struct {
	measure string
	answers []string
	wrong   []bool  // by case; nil where there is no truth
	bits    float64 // bits per byte; 0 where that is not measured
}

// exam is a model's test sets.
type exam func(ctx context.Context, s *server) ([]sheet, error)

// word is a case of g2p-en.
type word struct {
	Input      string   `json:"input"`
	References []string `json:"references"`
}

// labelled is a case of a model that answers with a label, which is text or a
// number.
type labelled struct {
	Input string          `json:"input"`
	Label json.RawMessage `json:"label"`
}

// truth returns the label as text.
func (l labelled) truth() string { return string(bytes.Trim(l.Label, `"`)) }

// continued is a text that kjv-lm goes on with.
type continued struct {
	Input string `json:"input"`
}

// continuation is how many bytes kjv-lm writes.
const continuation = 64

// readExam reads the test sets of a bundled model.
func (o Options) readExam(name string) (exam, error) {
	switch name {
	case "g2p-en":
		cases, err := readCases[word](o, "models", "zoo", "testdata", "g2p-en.jsonl")
		return func(ctx context.Context, s *server) ([]sheet, error) { return examWords(ctx, s, cases) }, err
	case "kjv-lm":
		cases, err := readCases[continued](o, "models", "testdata", "kjv-lm-texts.jsonl")
		if err != nil {
			return nil, err
		}
		text, err := o.heldOut()
		return func(ctx context.Context, s *server) ([]sheet, error) { return examText(ctx, s, cases, text) }, err
	case "langid":
		cases, err := readCases[labelled](o, "models", "zoo", "testdata", "langid.jsonl")
		return func(ctx context.Context, s *server) ([]sheet, error) {
			whole, err := examLabels(ctx, s, "wrong languages", cases)
			if err != nil {
				return nil, err
			}
			half, err := examLabels(ctx, s, "wrong languages of halves", halves(cases))
			return append(whole, half...), err
		}, err
	default:
		cases, err := readCases[labelled](o, "models", "zoo", "testdata", name+".jsonl")
		return func(ctx context.Context, s *server) ([]sheet, error) {
			return examLabels(ctx, s, "wrong values", cases)
		}, err
	}
}

// heldOut returns the held-out text of kjv-lm.
func (o Options) heldOut() (string, error) {
	b, err := os.ReadFile(filepath.Join(o.Root, "models", "testdata", "kjv-lm-valid.txt"))
	if err == nil && o.Samples > 0 {
		b = b[:min(len(b), 10*o.Samples)]
	}
	return string(b), err
}

// readCases reads as many cases of a file as count, one JSON object a line.
func readCases[T any](o Options, file ...string) ([]T, error) {
	name := filepath.Join(append([]string{o.Root}, file...)...)
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	var cases []T
	for d := json.NewDecoder(f); ; {
		var c T
		err := d.Decode(&c)
		if err == io.EOF {
			return cases[:o.limit(len(cases))], nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: case %d: %w", name, len(cases)+1, err)
		}
		cases = append(cases, c)
	}
}

// shortestHalf is the least bytes of a half: langid is made for that many.
const shortestHalf = 12

// halves cuts every text in two, near its middle, and keeps what is not too
// short.
func halves(cases []labelled) []labelled {
	var out []labelled
	for _, c := range cases {
		middle := len(c.Input) / 2
		for middle > 0 && !utf8.RuneStart(c.Input[middle]) {
			middle--
		}
		for _, half := range []string{c.Input[:middle], c.Input[middle:]} {
			if len(half) >= shortestHalf {
				out = append(out, labelled{Input: half, Label: c.Label})
			}
		}
	}
	return out
}

// examWords has every word pronounced. It is wrong unless the output is one of
// the references.
func examWords(ctx context.Context, s *server, cases []word) ([]sheet, error) {
	out := sheet{measure: "wrong words", answers: make([]string, len(cases)), wrong: make([]bool, len(cases))}
	err := s.all(ctx, len(cases), func(i int) (*models.Request, error) {
		return s.model.Unfold(models.Input{Text: cases[i].Input}, models.Params{})
	}, func(i int, req *models.Request, o models.Output) {
		out.answers[i] = req.Text(o.Tokens, 0)
		out.wrong[i] = !slices.Contains(cases[i].References, out.answers[i])
	})
	return []sheet{out}, err
}

// examLabels has every input labelled.
func examLabels(ctx context.Context, s *server, measure string, cases []labelled) ([]sheet, error) {
	out := sheet{measure: measure, answers: make([]string, len(cases)), wrong: make([]bool, len(cases))}
	err := s.all(ctx, len(cases), func(i int) (*models.Request, error) {
		return s.model.Unfold(models.Input{Text: cases[i].Input}, models.Params{})
	}, func(i int, req *models.Request, _ models.Output) {
		out.answers[i] = req.Outcome().Label
		out.wrong[i] = out.answers[i] != cases[i].truth()
	})
	return []sheet{out}, err
}

// examText measures the bits per byte of a held-out text and has the cases
// continued.
func examText(ctx context.Context, s *server, cases []continued, heldOut string) ([]sheet, error) {
	req, err := s.model.UnfoldScore(models.Input{Text: heldOut})
	if err != nil {
		return nil, err
	}
	if _, err := s.run(ctx, req); err != nil {
		return nil, err
	}
	read := sheet{measure: "bits per byte", bits: -req.LogProb() / math.Ln2 / float64(len(heldOut)-1)}
	wrote := sheet{measure: fmt.Sprintf("continuations of %d bytes", continuation), answers: make([]string, len(cases))}
	most := continuation
	err = s.all(ctx, len(cases), func(i int) (*models.Request, error) {
		return s.model.Unfold(models.Input{Text: cases[i].Input}, models.Params{MaxTokens: &most})
	}, func(i int, req *models.Request, o models.Output) {
		wrote.answers[i] = req.Text(o.Tokens, 0)
	})
	return []sheet{read, wrote}, err
}
