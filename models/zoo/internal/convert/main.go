// Command convert chooses and writes the stored form of a zoo model.
//
//	go run ./models/zoo/internal/convert -from DIR -words FILE
//	go run ./models/zoo/internal/convert -from DIR -words FILE -storage BF16 -to DIR
//	go run ./models/zoo/internal/convert -from DIR -labels FILE ...
//	go run ./models/zoo/internal/convert -from DIR -texts FILE -held-out FILE ...
//	go run ./models/zoo/internal/convert -name-weights DIR
//
// DIR of -from is a model directory with float32 weights, FILE has the test
// inputs, one JSON object a line, with the trainer's outputs. The first form
// rounds the weights to each storage type and prints how the model does. The
// second also writes DIR of -to: model.safetensors in the given type, and
// golden.jsonl with the trainer's outputs for inputs on which the stored
// weights give the same, spread over the whole file. Each line names the weights
// file. The last form only writes that into the lines of a golden.jsonl that is there.
//
// A file of -words is for sequence-to-sequence models; a line has "input",
// "output", "logprob", "finish_reason" and "references", where output and
// logprob are the trainer's greedy result. A word is right when its output is
// among the references.
//
// A file of -labels is for classifiers and trees; a line has "input", "label",
// the truth, and "output", the trainer's label, and perhaps "logits" or, by
// layer, the labels "by_layer".
//
// A file of -texts is for language models over bytes; a line has "input",
// "sum_logprob", the log-probability of the input's second and later bytes, and
// "greedy", its continuation. The file of -held-out is plain text that is read
// as one sequence.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

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
	goldenLines = 32
)

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "convert:", err)
		os.Exit(1)
	}
}

// measure runs test inputs and says how the model does.
type measure func(ctx context.Context, m *models.Model) (evaluation, error)

// evaluation is how a model does in one storage type.
type evaluation struct {
	summary string
	// golden are lines of golden.jsonl, where the outputs are the trainer's.
	golden []any
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("convert", flag.ContinueOnError)
	from := flags.String("from", "", "model directory with float32 weights")
	to := flags.String("to", "", "directory to write to; empty writes nothing")
	storage := flags.String("storage", "", "storage type to write: F32, F16 or BF16")
	wordFile := flags.String("words", "", "test words, one JSON object a line")
	labelFile := flags.String("labels", "", "labelled test inputs, one JSON object a line")
	textFile := flags.String("texts", "", "test texts, one JSON object a line")
	heldOut := flags.String("held-out", "", "held-out text, with -texts")
	named := flags.String("name-weights", "", "model directory whose golden.jsonl is to name its weights")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *named != "" {
		return nameWeights(*named)
	}
	test, err := readTest(*wordFile, *labelFile, *textFile, *heldOut)
	if err != nil {
		return err
	}
	for _, d := range []safetensors.DType{safetensors.F32, safetensors.BF16, safetensors.F16} {
		file, err := round(filepath.Join(*from, weightsFile), d)
		if err != nil {
			return err
		}
		e, err := evaluate(ctx, *from, file, test)
		if err != nil {
			return fmt.Errorf("evaluate %s: %w", d, err)
		}
		if _, err := fmt.Fprintf(stdout, "%-4s  %d bytes  %s\n", d, len(file), e.summary); err != nil {
			return err
		}
		if *to != "" && string(d) == *storage {
			if err := write(*to, file, e.golden); err != nil {
				return fmt.Errorf("write %s: %w", d, err)
			}
		}
	}
	return nil
}

// readTest reads the test inputs of the one kind that was given.
func readTest(words, labels, texts, heldOut string) (measure, error) {
	switch {
	case words != "" && labels == "" && texts == "":
		lines, err := readLines[word](words)
		return func(ctx context.Context, m *models.Model) (evaluation, error) { return testWords(ctx, m, lines) }, err
	case words == "" && labels != "" && texts == "":
		lines, err := readLines[labelled](labels)
		return func(ctx context.Context, m *models.Model) (evaluation, error) { return testLabels(ctx, m, lines) }, err
	case words == "" && labels == "" && texts != "":
		whole, err := os.ReadFile(heldOut)
		if err != nil {
			return nil, err
		}
		lines, err := readLines[text](texts)
		return func(ctx context.Context, m *models.Model) (evaluation, error) {
			return testTexts(ctx, m, lines, string(whole))
		}, err
	default:
		return nil, errors.New("one of -words, -labels and -texts wanted")
	}
}

// readLines decodes a file of JSON objects.
func readLines[T any](name string) ([]T, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var lines []T
	d := json.NewDecoder(bytes.NewReader(b))
	for {
		var line T
		if err := d.Decode(&line); errors.Is(err, io.EOF) {
			return lines, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", name, len(lines)+1, err)
		}
		lines = append(lines, line)
	}
}

// evaluate measures a model directory with other weights.
func evaluate(ctx context.Context, from string, weights []byte, test measure) (evaluation, error) {
	dir, err := os.MkdirTemp("", "convert")
	if err != nil {
		return evaluation{}, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a left-over temporary directory is no failure of the conversion
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		return evaluation{}, err
	}
	if err := replace(filepath.Join(dir, weightsFile), weights); err != nil {
		return evaluation{}, err
	}
	m, err := models.Load(os.DirFS(dir), filepath.Base(from))
	if err != nil {
		return evaluation{}, err
	}
	return test(ctx, m)
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

// runAll runs n requests and gives each and its output to use, which is called
// for different requests at the same time.
func runAll(ctx context.Context, m *models.Model, n int, unfold func(i int) (*models.Request, error),
	use func(i int, r *models.Request, out models.Output),
) error {
	r, err := runner.New(m.Program(), slots, cellrt.Config{Executors: 2})
	if err != nil {
		return err
	}
	serve, stop := context.WithCancel(ctx)
	var server errgroup.Group
	server.Go(func() error { return r.Serve(serve) })
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(slots)
	for i := range n {
		group.Go(func() error {
			req, err := unfold(i)
			if err != nil {
				return fmt.Errorf("input %d: %w", i+1, err)
			}
			out, err := r.Run(ctx, req)
			if err != nil {
				return fmt.Errorf("input %d: %w", i+1, err)
			}
			use(i, req, out)
			return nil
		})
	}
	err = group.Wait()
	stop()
	return errors.Join(err, server.Wait())
}

// write writes the weights and the golden file.
func write(dir string, weights []byte, golden []any) error {
	var buf bytes.Buffer
	lines := json.NewEncoder(&buf)
	lines.SetEscapeHTML(false)
	for _, g := range golden {
		if err := lines.Encode(g); err != nil {
			return err
		}
	}
	named, err := withWeights(buf.Bytes(), weights)
	return errors.Join(err,
		replace(filepath.Join(dir, weightsFile), weights),
		replace(filepath.Join(dir, goldenFile), named),
	)
}
