package models

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strconv"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/internal/brief"
)

// Output is what a request's graph gave when it was run to its end.
type Output struct {
	// Tokens are the emitted tokens, in order.
	Tokens []cellrt.Token
	// Reason says why the output ended.
	Reason cellrt.Reason
}

// Run runs a request to its end. Whoever has a runtime provides it.
type Run func(ctx context.Context, r *Request) (Output, error)

// goldenCase is a line of golden.jsonl.
type goldenCase struct {
	// Input is text, InputIDs are token ids: one of them is set.
	Input    string  `json:"input,omitempty"`
	InputIDs []int32 `json:"input_ids,omitempty"`
	// Tokens are the ids of the output and Text their text.
	Tokens []int32 `json:"tokens,omitzero"`
	Text   string  `json:"text,omitempty"`
	// FinishReason is "stop" or "length".
	FinishReason string `json:"finish_reason"`
	// LogProb is the sum of the output's log-probabilities, end tokens
	// included; the model's may be off by Tolerance.
	LogProb   *float64 `json:"logprob,omitempty"`
	Tolerance float64  `json:"tolerance"`
	// MaxTokens is the request's, where it gives one.
	MaxTokens *int `json:"max_tokens,omitempty"`
	// InputLogProb is the log-probability of the input itself (see
	// [Model.UnfoldScore]); the model's may be off by Tolerance.
	InputLogProb *float64 `json:"input_logprob,omitempty"`
	// Label is the class in families that answer with one, and Logits the last
	// layer's, each of which may be off by Tolerance.
	Label  string    `json:"label,omitempty"`
	Logits []float32 `json:"logits,omitempty"`
	// SelfMade says that cellmq recorded the line with the model itself.
	SelfMade bool `json:"self_made,omitempty"`
	// WeightsSHA256 is the SHA-256 of the weights file that the line is of, in
	// hexadecimal.
	WeightsSHA256 *string `json:"weights_sha256,omitempty"`

	line int
}

// GoldenError says where a model's output is not the recorded one.
type GoldenError struct {
	// Model is the model's name.
	Model string
	// Line is the line of golden.jsonl, from 1.
	Line int
	// Field is the key of what differs, for example "tokens" or "logprob".
	Field string
	// Got and Want are the model's and the recorded value, texts quoted.
	// Long ones begin shortly before they differ and are shortened.
	Got, Want string
}

// Error names the line, the field and both values.
func (e *GoldenError) Error() string {
	return fmt.Sprintf("model %s: golden.jsonl line %d: %s is %s, want %s", e.Model, e.Line, e.Field, e.Got, e.Want)
}

func (m *Model) verify(ctx context.Context, run Run, c goldenCase) error {
	in := Input{Text: c.Input, IDs: c.InputIDs}
	r, err := m.Unfold(in, Params{MaxTokens: c.MaxTokens})
	out, err := m.runGolden(ctx, run, c, r, err)
	if err != nil {
		return err
	}
	if err := m.compare(c, r, out); err != nil {
		return err
	}
	if c.InputLogProb == nil {
		return nil
	}
	r, err = m.UnfoldScore(in)
	if _, err := m.runGolden(ctx, run, c, r, err); err != nil {
		return err
	}
	return m.compareLogProb(c, "input_logprob", r.LogProb(), *c.InputLogProb)
}

// runGolden runs a golden request, unless it could not be unfolded.
func (m *Model) runGolden(ctx context.Context, run Run, c goldenCase, r *Request, err error) (Output, error) {
	if err != nil {
		return Output{}, fmt.Errorf("model %s: golden.jsonl line %d: %w", m.name, c.line, err)
	}
	out, err := run(ctx, r)
	if err != nil {
		return Output{}, fmt.Errorf("model %s: run golden.jsonl line %d: %w", m.name, c.line, err)
	}
	return out, nil
}

// compare compares an output with the recorded one.
func (m *Model) compare(c goldenCase, r *Request, out Output) error {
	ids := make([]int32, len(out.Tokens))
	for i, t := range out.Tokens {
		ids[i] = t.ID
	}
	text, outcome := r.Text(out.Tokens, 0), r.Outcome()
	switch {
	case !slices.Equal(ids, c.Tokens):
		return m.differs(c, "tokens", ids, c.Tokens)
	case text != c.Text:
		return m.differs(c, "text", strconv.Quote(text), strconv.Quote(c.Text))
	case out.Reason.String() != c.FinishReason:
		return m.differs(c, "finish_reason", strconv.Quote(out.Reason.String()), strconv.Quote(c.FinishReason))
	case c.Label != "" || outcome.Label != "": // a line without the label would verify nothing
		return m.compareLabel(c, outcome)
	case c.LogProb != nil:
		return m.compareLogProb(c, "logprob", r.LogProb(), *c.LogProb)
	}
	return nil
}

func (m *Model) compareLogProb(c goldenCase, field string, got, want float64) error {
	allowed := m.allowance(c, max(math.Abs(want), leastLogProb))
	if math.IsNaN(got) || math.Abs(got-want) > allowed {
		return m.differs(c, field, got, fmt.Sprintf("%v within %v", want, allowed))
	}
	return nil
}

func (m *Model) compareLabel(c goldenCase, o Outcome) error {
	if o.Label != c.Label {
		return m.differs(c, "label", strconv.Quote(o.Label), strconv.Quote(c.Label))
	}
	last := o.Logits[len(o.Logits)-1]
	if len(last) != len(c.Logits) {
		return m.differs(c, "logits", fmt.Sprintf("%d values", len(last)), len(c.Logits))
	}
	allowed := m.allowance(c, largest(c.Logits))
	for i, want := range c.Logits {
		if got := last[i]; !(math.Abs(float64(got)-float64(want)) <= allowed) {
			return m.differs(c, "logits", fmt.Sprintf("%v at index %d", got, i), fmt.Sprintf("%v within %v", want, allowed))
		}
	}
	return nil
}

func (m *Model) differs(c goldenCase, field string, got, want any) error {
	e := &GoldenError{Model: m.name, Line: c.line, Field: field}
	e.Got, e.Want = brief.Difference(fmt.Sprint(got), fmt.Sprint(want))
	return e
}

// readGolden reads golden.jsonl, if there is one, whose lines must be of the
// weights of the given sum where they name one.
func readGolden(fsys fs.FS, weightsSum string) ([]goldenCase, error) {
	if _, err := fs.Stat(fsys, goldenFile); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	b, err := readFile(fsys, goldenFile, maxGoldenBytes)
	if err != nil {
		return nil, err
	}
	var cases []goldenCase
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, maxGoldenBytes)
	for n := 1; lines.Scan(); n++ {
		c, err := readCase(lines.Bytes())
		if err != nil {
			return nil, &ConfigError{File: goldenFile, Field: fmt.Sprintf("line %d", n), Err: brief.Error(err)}
		}
		if named := c.WeightsSHA256; named != nil && *named != weightsSum {
			return nil, &ConfigError{File: goldenFile, Field: "weights_sha256", Err: fmt.Errorf(
				"line %d is of weights with %.64q, those of %s have %q", n, *named, weightsFile, weightsSum)}
		}
		c.line = n
		cases = append(cases, c)
	}
	if err := lines.Err(); err != nil {
		return nil, &ConfigError{File: goldenFile, Err: err}
	}
	return cases, nil
}

// readCase reads a line of golden.jsonl.
func readCase(line []byte) (goldenCase, error) {
	var c goldenCase
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return goldenCase{}, err
	}
	if _, after := d.Token(); !errors.Is(after, io.EOF) {
		return goldenCase{}, errors.New("something follows the object")
	}
	return c, nil
}
