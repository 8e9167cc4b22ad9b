package models_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/internal/runner"
	"github.com/cellmq/cellmq/models/safetensors"
)

// question is a request of a test.
type question struct {
	model  *models.Model
	input  models.Input
	params models.Params
}

// randomRequests returns requests to all fixtures: greedy, sampled and searched
// outputs, texts with and without ramps, trees.
func randomRequests(t *testing.T, rng *rand.Rand, perModel int) []question {
	t.Helper()
	var requests []question
	for _, m := range fixtures(t, "") {
		for i := range perModel {
			a := question{model: m}
			switch m.Family() {
			case models.FamilyTree:
				a.input.Text = randomTree(rng, 1+rng.IntN(30))
			case models.FamilyClassifier:
				a.input.IDs = randomIDs(rng, 1+rng.IntN(25))
				a.params.Ramps = i%2 == 0
			default:
				a.input.IDs = randomIDs(rng, 1+rng.IntN(15))
				a.params = []models.Params{
					{MaxTokens: ptr(15)},
					{MaxTokens: ptr(15), Temperature: ptr(1.5), TopK: ptr(9), TopP: ptr(0.9), Seed: ptr(rng.Uint64())},
					{MaxTokens: ptr(15), BeamWidth: ptr(3), NBest: ptr(2)},
				}[i%3]
			}
			requests = append(requests, a)
		}
	}
	return requests
}

// randomIDs returns tokens that every fixture knows.
func randomIDs(rng *rand.Rand, n int) []int32 {
	ids := make([]int32, n)
	for i := range ids {
		ids[i] = 3 + int32(rng.IntN(14))
	}
	return ids
}

// randomTree returns a tree with the given number of leaves.
func randomTree(rng *rand.Rand, leaves int) string {
	if leaves == 1 {
		return fmt.Sprint("t", rng.IntN(11))
	}
	left := 1 + rng.IntN(leaves-1)
	return "( " + randomTree(rng, left) + " " + randomTree(rng, leaves-left) + " )"
}

// bitsOf returns all that a request gave, down to the bits of its numbers.
func bitsOf(req *models.Request, out models.Output) string {
	var b strings.Builder
	tokens := func(tokens []cellrt.Token) {
		for _, tok := range tokens {
			fmt.Fprintf(&b, " %d:%x:%t", tok.ID, math.Float32bits(tok.LogProb), tok.Break)
		}
	}
	o := req.Outcome()
	fmt.Fprintf(&b, "reason %d logprob %x label %s tokens", out.Reason, math.Float64bits(o.LogProb), o.Label)
	tokens(out.Tokens)
	for _, a := range o.Alternatives {
		fmt.Fprintf(&b, " alternative %d %x", a.Reason, math.Float64bits(a.LogProb))
		tokens(a.Tokens)
	}
	for _, logits := range o.Logits {
		b.WriteString(" logits")
		for _, v := range logits {
			fmt.Fprintf(&b, " %x", math.Float32bits(v))
		}
	}
	for _, s := range o.Scores {
		fmt.Fprintf(&b, " %s %x", s.Label, math.Float32bits(s.Probability))
	}
	return b.String()
}

func runQuestion(ctx context.Context, r *runner.Runner, a question) (string, error) {
	req, err := a.model.Unfold(a.input, a.params)
	if err != nil {
		return "", err
	}
	out, err := r.Run(ctx, req)
	if err != nil {
		return "", err
	}
	return bitsOf(req, out), nil
}

// serveAll runs the models of requests in one runtime until the test ends.
func serveAll(t *testing.T, slots int, cfg cellrt.Config, requests []question) *runner.Runner {
	t.Helper()
	var programs []*cellrt.Program
	for _, a := range requests {
		if p := a.model.Program(); !slices.Contains(programs, p) {
			programs = append(programs, p)
		}
	}
	r, err := runner.New(programs[0], slots, cfg, programs[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	start(t, r)
	return r
}

// TestFamiliesTogether runs requests to models of all families alone, then in
// random mixes in one runtime with random moments of arrival, some of them
// cancelled, and compares everything as bits.
func TestFamiliesTogether(t *testing.T) {
	t.Parallel()
	requests := randomRequests(t, rand.New(rand.NewPCG(1, 2)), 9)
	lone := serveAll(t, 1, cellrt.Config{}, requests)
	want := make([]string, len(requests))
	for i, a := range requests {
		var err error
		if want[i], err = runQuestion(t.Context(), lone, a); err != nil {
			t.Fatal(err)
		}
	}
	mixes := 80
	if testing.Short() {
		mixes = 6
		t.Logf("%d mixes", mixes)
	}
	shapes := []cellrt.Shape{{Executors: 1, Threads: 1}, {Executors: 2, Threads: 1}, {Executors: 4, Threads: 1}, {Executors: 1, Threads: 2}, {Executors: 2, Threads: 2}}
	for i, shape := range shapes {
		t.Run(fmt.Sprintf("%d executors of %d threads", shape.Executors, shape.Threads), func(t *testing.T) {
			t.Parallel()
			r := serveAll(t, 6, cellrt.Config{Executors: shape.Executors, Threads: shape.Threads, MaxRows: 7}, requests)
			checkFamilies(t, r, mixes, requests, want, func(int) {})
			// A few mixes may be over before anybody gave up.
			if s := r.Stats(); s.Rows == s.Steps || s.PaddedRows != 0 || s.Cancelled == 0 && !testing.Short() {
				t.Errorf("%d rows in %d steps, %d padded, %d cancelled", s.Rows, s.Steps, s.PaddedRows, s.Cancelled)
			}
		})
		t.Run(fmt.Sprint("reshaped from ", i), func(t *testing.T) {
			t.Parallel()
			r := serveAll(t, 6, cellrt.Config{Executors: shape.Executors, Threads: shape.Threads}, requests)
			checkFamilies(t, r, mixes/4, requests, want, func(mix int) {
				if err := r.Reshape(shapes[(i+mix)%len(shapes)]); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// checkFamilies runs random mixes, each while something else is done.
func checkFamilies(t *testing.T, r *runner.Runner, mixes int, requests []question, want []string, meanwhile func(mix int)) {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, uint64(mixes)))
	for mix := range mixes {
		var group sync.WaitGroup
		group.Go(func() { meanwhile(mix) })
		runMix(t, r, rng, requests, want)
		group.Wait()
		if t.Failed() {
			return
		}
	}
}

var errGone = errors.New("gone")

// runMix runs a random set of requests at once, one in four of which gives up.
func runMix(t *testing.T, r *runner.Runner, rng *rand.Rand, requests []question, want []string) {
	t.Helper()
	var group sync.WaitGroup
	for range 1 + rng.IntN(40) {
		i, delay, gone := rng.IntN(len(requests)), time.Duration(rng.IntN(200))*time.Microsecond, rng.IntN(4) == 0
		group.Go(func() {
			<-time.After(delay) // arrive while others are running
			ctx := t.Context()
			if gone {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeoutCause(ctx, delay, errGone)
				defer cancel()
			}
			got, err := runQuestion(ctx, r, requests[i])
			if gone && errors.Is(err, errGone) {
				return
			}
			if err != nil || got != want[i] {
				t.Errorf("%s %v: got %s, %v in a mix, %s alone", requests[i].model.Name(), requests[i].input, got, err, want[i])
			}
		})
	}
	group.Wait()
}

// TestNotFiniteRows poisons one embedding of a classifier and of a tree model:
// requests with that token fail, the bits of all others stay.
func TestNotFiniteRows(t *testing.T) {
	t.Parallel()
	tests := []struct {
		fixture string
		bad     models.Input // has token 3
		good    []models.Input
	}{
		{"clf-lstm-4x27", models.Input{IDs: []int32{7, 3, 9}}, []models.Input{{IDs: []int32{1}}, {IDs: []int32{5, 8, 13, 5, 2}}}},
		{"tree-h29", models.Input{Text: "( t0 ( t3 t1 ) )"}, []models.Input{{Text: "t1"}, {Text: "( ( t1 t2 ) ( t5 t4 ) )"}}},
	}
	for _, tt := range tests {
		t.Run(tt.fixture, func(t *testing.T) {
			t.Parallel()
			m := load(t, os.DirFS(filepath.Join("testdata", "fixtures", tt.fixture)), "m")
			sound := serve(t, m, 1, cellrt.Config{})
			spoiled := poison(t, tt.fixture)
			r := serve(t, spoiled, 8, cellrt.Config{})
			var group sync.WaitGroup
			for range 20 {
				group.Go(func() {
					req, err := spoiled.Unfold(tt.bad, models.Params{})
					if err != nil {
						t.Error(err)
						return
					}
					if _, err := r.Run(t.Context(), req); !errors.Is(err, cellrt.ErrNumerical) {
						t.Errorf("poisoned input: %v", err)
					}
					if o := req.Outcome(); o.Label != "" || o.Scores != nil || o.Logits != nil {
						t.Errorf("a failed request has outcome %+v", o)
					}
				})
				for _, in := range tt.good {
					group.Go(func() {
						want, err := runQuestion(t.Context(), sound, question{model: m, input: in})
						if err != nil {
							t.Error(err)
						}
						if got, err := runQuestion(t.Context(), r, question{model: spoiled, input: in}); err != nil || got != want {
							t.Errorf("%v: got %s, %v, want %s", in, got, err, want)
						}
					})
				}
			}
			group.Wait()
		})
	}
}

// poison returns a fixture whose embedding of token 3 is not a number.
func poison(t *testing.T, fixture string) *models.Model {
	t.Helper()
	dir := directory(t, fixture)
	changeTensors(t, dir, func(v safetensors.Values) {
		if v.Name == "embed.weight" {
			v.Data[3*v.Shape[1]] = float32(math.NaN())
		}
	})
	return load(t, dir, "m")
}

// zeroTensors sets the tensors of the given names to zero.
func zeroTensors(t *testing.T, dir fstest.MapFS, names ...string) {
	t.Helper()
	changeTensors(t, dir, func(v safetensors.Values) {
		if slices.Contains(names, v.Name) {
			clear(v.Data)
		}
	})
}

// changeTensors changes the weights of a directory.
func changeTensors(t *testing.T, dir fstest.MapFS, change func(v safetensors.Values)) {
	t.Helper()
	f, err := safetensors.Parse(dir["model.safetensors"].Data)
	if err != nil {
		t.Fatal(err)
	}
	var values []safetensors.Values
	for _, tensor := range f.Tensors() {
		v := safetensors.Values{Name: tensor.Name, DType: tensor.DType, Shape: tensor.Shape, Data: tensor.Float32s()}
		change(v)
		values = append(values, v)
	}
	var b bytes.Buffer
	if err := safetensors.Write(&b, values, nil); err != nil {
		t.Fatal(err)
	}
	dir["model.safetensors"] = &fstest.MapFile{Data: b.Bytes()}
}
