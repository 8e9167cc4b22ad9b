// Command convert chooses and writes the stored form of a zoo model.
//
//	go run ./models/zoo/internal/convert -from DIR -words FILE
//	go run ./models/zoo/internal/convert -from DIR -words FILE -storage BF16 -to DIR
//
// DIR of -from is a model directory with float32 weights, FILE has a test word
// a line: {"input", "output", "logprob", "finish_reason", "references"}, where
// output and logprob are the trainer's greedy result. The first form rounds
// the weights to each storage type and prints how the model does: words whose
// greedy output is among the references, and words whose output is the
// trainer's. The second also writes DIR of -to: model.safetensors in the given
// type, and golden.jsonl with the trainer's results for words on which the
// stored weights give the same tokens, spread over the whole file.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/internal/runner"
	"github.com/cellmq/cellmq/models/safetensors"
)

const (
	weightsFile = "model.safetensors"
	goldenFile  = "golden.jsonl"
	slots       = 64
	goldenWords = 32
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "convert:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("convert", flag.ContinueOnError)
	from := flags.String("from", "", "model directory with float32 weights")
	to := flags.String("to", "", "directory to write to; empty writes nothing")
	storage := flags.String("storage", "", "storage type to write: F32, F16 or BF16")
	wordFile := flags.String("words", "", "test words, one JSON object a line")
	if err := flags.Parse(args); err != nil {
		return err
	}
	words, err := readWords(*wordFile)
	if err != nil {
		return err
	}
	for _, d := range []safetensors.DType{safetensors.F32, safetensors.BF16, safetensors.F16} {
		s, err := evaluate(ctx, *from, d, words)
		if err != nil {
			return fmt.Errorf("evaluate %s: %w", d, err)
		}
		_, err = fmt.Fprintf(stdout, "%-4s  %d bytes  %d of %d words wrong (%.2f %%)  output differs from the trainer's: %d  largest difference of a logprob: %.2g\n",
			d, len(s.file), s.wrong, len(words), 100*float64(s.wrong)/float64(len(words)), s.different, s.off)
		if err != nil {
			return err
		}
		if *to != "" && string(d) == *storage {
			if err := write(*to, s, words); err != nil {
				return fmt.Errorf("write %s: %w", d, err)
			}
		}
	}
	return nil
}

// word is a test word with the trainer's result.
type word struct {
	Input        string     `json:"input"`
	Output       []string   `json:"output"`
	LogProb      float64    `json:"logprob"`
	FinishReason string     `json:"finish_reason"`
	References   [][]string `json:"references"`
}

func readWords(name string) ([]word, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var words []word
	d := json.NewDecoder(bytes.NewReader(b))
	for {
		var w word
		if err := d.Decode(&w); errors.Is(err, io.EOF) {
			return words, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: word %d: %w", name, len(words)+1, err)
		}
		words = append(words, w)
	}
}

// stored is a model in one storage type and how it does.
type stored struct {
	file             []byte
	results          []result
	wrong, different int
	off              float64 // largest difference of a logprob where the tokens are the same
}

type result struct {
	text    []string
	tokens  []int32
	logProb float64
}

// evaluate rounds the weights of a model directory and runs all words.
func evaluate(ctx context.Context, from string, d safetensors.DType, words []word) (*stored, error) {
	dir, err := os.MkdirTemp("", "convert")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a left-over temporary directory is no failure of the conversion
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		return nil, err
	}
	s := &stored{}
	if s.file, err = round(filepath.Join(from, weightsFile), d); err != nil {
		return nil, err
	}
	if err := replace(filepath.Join(dir, weightsFile), s.file); err != nil {
		return nil, err
	}
	m, err := models.Load(os.DirFS(dir), filepath.Base(from))
	if err != nil {
		return nil, err
	}
	if s.results, err = runAll(ctx, m, words); err != nil {
		return nil, err
	}
	for i, w := range words {
		r := s.results[i]
		if !slices.ContainsFunc(w.References, func(ref []string) bool { return slices.Equal(ref, r.text) }) {
			s.wrong++
		}
		if !slices.Equal(w.Output, r.text) {
			s.different++
			continue
		}
		s.off = max(s.off, math.Abs(r.logProb-w.LogProb))
	}
	return s, nil
}

// round returns a weights file with its values rounded to d.
func round(name string, d safetensors.DType) ([]byte, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	f, err := safetensors.Parse(b)
	if err != nil {
		return nil, err
	}
	var out []safetensors.Values
	for _, t := range f.Tensors() {
		out = append(out, safetensors.Values{Name: t.Name, DType: d, Shape: t.Shape, Data: t.Float32s()})
	}
	var buf bytes.Buffer
	if err := safetensors.Write(&buf, out, f.Metadata); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// replace writes a file in place of one that may be read-only.
func replace(name string, b []byte) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(name, b, 0o644)
}

func runAll(ctx context.Context, m *models.Model, words []word) ([]result, error) {
	r, err := runner.New(m.Program(), slots, cellrt.Config{Executors: 2})
	if err != nil {
		return nil, err
	}
	serve, stop := context.WithCancel(ctx)
	var server errgroup.Group
	server.Go(func() error { return r.Serve(serve) })
	results := make([]result, len(words))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(slots)
	for i, w := range words {
		group.Go(func() error {
			req, err := m.Unfold(models.Input{Text: w.Input}, models.Params{})
			if err != nil {
				return fmt.Errorf("word %d: %w", i+1, err)
			}
			out, err := r.Run(ctx, req)
			if err != nil {
				return fmt.Errorf("word %d: %w", i+1, err)
			}
			results[i].logProb = req.LogProb()
			results[i].text = strings.Fields(string(m.NewText().Append(nil, out.Tokens...)))
			for _, t := range out.Tokens {
				results[i].tokens = append(results[i].tokens, t.ID)
			}
			return nil
		})
	}
	err = group.Wait()
	stop()
	return results, errors.Join(err, server.Wait())
}

// golden is a line of golden.jsonl.
type golden struct {
	Input        string  `json:"input"`
	Tokens       []int32 `json:"tokens"`
	Text         string  `json:"text"`
	FinishReason string  `json:"finish_reason"`
	LogProb      float64 `json:"logprob"`
	Tolerance    float64 `json:"tolerance"`
}

// write writes the weights and the golden file. The tolerance covers twice
// what rounding changed in any word.
func write(dir string, s *stored, words []word) error {
	var buf bytes.Buffer
	lines := json.NewEncoder(&buf)
	lines.SetEscapeHTML(false)
	tolerance := max(1e-4, math.Ceil(2*s.off*1000)/1000)
	for i := 0; i < len(words); i += max(1, len(words)/goldenWords) {
		w, r := words[i], s.results[i]
		if !slices.Equal(w.Output, r.text) {
			continue
		}
		err := lines.Encode(golden{
			Input: w.Input, Tokens: r.tokens, Text: strings.Join(r.text, " "),
			FinishReason: w.FinishReason, LogProb: w.LogProb, Tolerance: tolerance,
		})
		if err != nil {
			return err
		}
	}
	return errors.Join(
		replace(filepath.Join(dir, weightsFile), s.file),
		replace(filepath.Join(dir, goldenFile), buf.Bytes()),
	)
}
