package worker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

// letterOf returns a letter about a request in JSON to m.
func letterOf(m *models.Model, payload string) *broker.Letter {
	return &broker.Letter{
		Number: 7, Sequence: 4711, Published: time.Unix(1_700_000_000, 0), Subject: "infer.req." + m.Name() + ".std.me",
		Client: "me", ID: "request0001", Model: m.Name(), Worker: "w1", Digest: m.Digest(), Code: broker.CodeInternal, Attempts: 1,
		Header: nats.Header{"Nats-Msg-Id": {"request0001"}}, Payload: []byte(payload),
	}
}

// record gives a letter its terminal frame.
func record(t *testing.T, l *broker.Letter, f *broker.Frame) *broker.Letter {
	t.Helper()
	var err error
	if l.Terminal, err = broker.AppendFrame(nil, broker.JSON, f); err != nil {
		t.Fatal(err)
	}
	if f.Error != nil {
		l.Code = f.Error.Code
	}
	return l
}

// failed is a terminal frame with an error.
func failed(code broker.Code) *broker.Frame {
	return &broker.Frame{Type: broker.FrameError, Error: broker.NewError(code, "as recorded")}
}

// fields lists what differs.
func fields(r worker.ReplayReport) (names []string) {
	for _, d := range r.Differences {
		names = append(names, d.Field)
	}
	return names
}

// TestReplayGivesWhatAWorkerGave runs requests of all families on a worker, which
// batches them, and again from letters.
func TestReplayGivesWhatAWorkerGave(t *testing.T) {
	t.Parallel()
	all := []*models.Model{silent(t, "g2p-en"), silent(t, "kjv-lm"), silent(t, "langid"), silent(t, "listops")}
	server := newServer(t)
	start(t, server, worker.Deps{Models: all}, nil)
	nc := connect(t, server)
	for i, tc := range []struct{ name, model, payload, mode string }{
		{"greedy", "g2p-en", `{"input": "hello"}`, ""},
		{"text", "g2p-en", `hello`, ""},
		{"search", "g2p-en", `{"input": "queue", "beam_width": 3, "n_best": 2}`, ""},
		{"sampled by id, with log-probabilities", "kjv-lm", `{"input": "In the", "max_tokens": 9, "temperature": 1, "logprobs": 3}`, "final"},
		{"stop", "kjv-lm", `{"input": "In the", "max_tokens": 30, "stop": ["of"]}`, ""},
		{"classes", "langid", `{"input": "Todos los seres"}`, ""},
		{"tree", "listops", `{"input": "( ( ( [MAX 2 ) 9 ) ] )"}`, ""},
	} {
		id := fmt.Sprintf("request%04d", i)
		m := all[slices.IndexFunc(all, func(m *models.Model) bool { return m.Name() == tc.model })]
		l := letterOf(m, tc.payload)
		l.ID = id
		l.Header["infer-mode"] = []string{tc.mode}
		out := subscribe(t, nc, "infer.out.me."+id)
		publish(t, nc, l.Subject, "", l.Payload, "Nats-Msg-Id", id, "Infer-Mode", tc.mode)
		frame := lastFrame(t, out)
		t.Run(tc.name, func(t *testing.T) {
			record(t, l, &frame)
			l.Tokens = frame.Tokens
			report, err := worker.Replay(t.Context(), l, all, nil)
			if err != nil || !report.Equal() || len(report.Missing) > 0 || report.Steps == 0 || report.Recorded.Type != broker.FrameFinal {
				t.Errorf("%v, %+v", err, report)
			}
			// A letter that says something else is not equal.
			changed := frame
			final := *frame.Final
			final.LogProb, changed.Final, changed.Text = final.LogProb+1e-12*final.LogProb, &final, frame.Text+"x"
			record(t, l, &changed)
			want := []string{"text", "logprob"}
			if frame.Final.Label != "" {
				want = want[:1] // there is no number
			}
			if report, err := worker.Replay(t.Context(), l, all, nil); err != nil || !slices.Equal(fields(report), want) {
				t.Errorf("%v, differs in %v, want %v", err, fields(report), want)
			}
		})
	}
}

// TestReplay compares letters of requests that failed.
func TestReplay(t *testing.T) {
	t.Parallel()
	sound := silent(t, "g2p-en")
	spoiled := randomModel(t, "spoiled", 4, func(bias []float32) { bias[5] = 1e38; bias[6] = 1e38 })
	for i := range spoiled.Program().Cells {
		spoil(spoiled.Program().Cells[i])
	}
	hello, err := worker.Replay(t.Context(), letterOf(sound, "hello"), []*models.Model{sound}, nil)
	if err != nil || len(hello.Tokens) != 4 {
		t.Fatalf("%v, tokens %v", err, hello.Tokens)
	}
	other := slices.Clone(hello.Tokens)
	other[1]++
	for _, tc := range []struct {
		name    string
		letter  *broker.Letter
		change  func(*broker.Letter)
		frame   broker.FrameType
		differs []string
		missing []string
	}{
		{"numerical_error", record(t, letterOf(spoiled, `{"input": [3]}`), failed(broker.CodeNumericalError)), nil, "error", nil, nil},
		{"another error", record(t, letterOf(spoiled, `{"input": [3]}`), failed(broker.CodeInternal)), nil, "error", []string{"code"}, nil},
		{"internal that runs now", record(t, letterOf(sound, "hello"), failed(broker.CodeInternal)), nil, "final", []string{"type"}, nil},
		{
			"attempts_exhausted, tokens as recorded", record(t, letterOf(sound, "hello"), failed(broker.CodeAttemptsExhausted)),
			func(l *broker.Letter) { l.Tokens = hello.Tokens[:2] },
			"final",
			[]string{"type"},
			nil,
		},
		{
			"attempts_exhausted, other tokens", record(t, letterOf(sound, "hello"), failed(broker.CodeAttemptsExhausted)),
			func(l *broker.Letter) { l.Tokens = other[:2] },
			"final",
			[]string{"type", "tokens so far"},
			nil,
		},
		{
			"more tokens than there are", record(t, letterOf(spoiled, `{"input": [3]}`), failed(broker.CodeNumericalError)),
			func(l *broker.Letter) { l.Tokens = []int32{3} },
			"error",
			[]string{"tokens so far"},
			nil,
		},
		{
			"without tokens and terminal", letterOf(spoiled, `{"input": [3]}`),
			func(l *broker.Letter) {
				l.Code, l.Tokens, l.Truncated = broker.CodeNumericalError, []int32{3}, []string{"tokens", "terminal"}
			},
			"error", nil,
			[]string{"tokens", "terminal"},
		},
		{
			"terminal that is no frame", letterOf(spoiled, `{"input": [3]}`),
			func(l *broker.Letter) { l.Code, l.Terminal = broker.CodeNumericalError, []byte{0xc1} },
			"error", nil,
			[]string{"terminal"},
		},
		{"malformed", record(t, letterOf(sound, `{"input": 3}`), failed(broker.CodeBadRequest)), nil, "error", nil, nil},
		{"refused by the model", record(t, letterOf(sound, `{"input": "b7"}`), failed(broker.CodeBadRequest)), nil, "error", nil, nil},
		{
			"what says how it was delivered", record(t, letterOf(spoiled, `{"input": [3]}`), failed(broker.CodeNumericalError)),
			func(l *broker.Letter) {
				l.Header = nats.Header{
					"Infer-Deadline": {"1"}, "Infer-Reply-To": {"elsewhere"}, "Nats-TTL": {"1s"}, "Nats-Expected-Last-Sequence": {"99"},
					"Content-Type": {"application/json"},
				}
			},
			"error", nil, nil,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if tc.change != nil {
				tc.change(tc.letter)
			}
			report, err := worker.Replay(t.Context(), tc.letter, []*models.Model{sound, spoiled}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if report.Replayed.Type != tc.frame || !slices.Equal(fields(report), tc.differs) || !slices.Equal(report.Missing, tc.missing) {
				t.Errorf("%s differs in %v, missing %v: %+v", report.Replayed.Type, report.Differences, report.Missing, report.Replayed.Error)
			}
		})
	}
}

// TestReplayIsSingleStepped wants a row in each step, all of them told.
func TestReplayIsSingleStepped(t *testing.T) {
	t.Parallel()
	m := silent(t, "g2p-en")
	steps := 0
	report, err := worker.Replay(t.Context(), letterOf(m, `{"input": "cellular batching", "beam_width": 4}`), []*models.Model{m}, func(s cellrt.StepTrace) {
		steps++
		if s.Rows != 1 || s.Program != "g2p-en" || s.Cell == "" {
			t.Errorf("step %d: %+v", steps, s)
		}
	})
	if err != nil || steps < 20 || report.Steps != steps {
		t.Errorf("%v, %d of %d steps", err, steps, report.Steps)
	}
}

func TestReplayEnds(t *testing.T) {
	t.Parallel()
	m := endless(t, "endless")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	steps := 0
	_, err := worker.Replay(ctx, letterOf(m, `{"input": [3], "max_tokens": 16384}`), []*models.Model{m}, func(cellrt.StepTrace) {
		if steps++; steps == 10 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || steps >= 16384 {
		t.Errorf("%v after %d steps", err, steps)
	}
}

func TestNoReplay(t *testing.T) {
	t.Parallel()
	m := silent(t, "g2p-en")
	for _, tc := range []struct {
		name   string
		change func(*broker.Letter)
		want   error
	}{
		{"no payload", func(l *broker.Letter) { l.Truncated = []string{"payload"} }, worker.ErrNoReplay},
		{"no subject", func(l *broker.Letter) { l.Subject = "" }, worker.ErrNoReplay},
		{"subject of another model", func(l *broker.Letter) { l.Subject = "infer.req.other.std.me" }, worker.ErrNoReplay},
		{"other model", func(l *broker.Letter) { l.Model = "other" }, worker.ErrModel},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := letterOf(m, "hello")
			tc.change(l)
			if _, err := worker.Replay(t.Context(), l, []*models.Model{m}, nil); !errors.Is(err, tc.want) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestReplayModel(t *testing.T) {
	t.Parallel()
	m := silent(t, "listops")
	genuine := func() *broker.Letter {
		l := letterOf(m, "x")
		l.Digest = "" // the bundled one has another, with its golden outputs
		return l
	}
	found, err := worker.ReplayModel(genuine(), worker.ServeConfig{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		change func(*broker.Letter, *worker.ServeConfig)
		want   error
	}{
		{"the same", func(l *broker.Letter, _ *worker.ServeConfig) { l.Digest = found.Digest() }, nil},
		{"other files", func(l *broker.Letter, _ *worker.ServeConfig) { l.Digest = m.Digest() }, worker.ErrOtherModel},
		{"pinned to it", func(l *broker.Letter, _ *worker.ServeConfig) { l.Header.Set("Infer-Version", found.Version()) }, nil},
		{"pinned to another version", func(l *broker.Letter, _ *worker.ServeConfig) { l.Header.Set("infer-version", "0") }, worker.ErrOtherModel},
		{"final of other weights", func(l *broker.Letter, c *worker.ServeConfig) {
			record(t, l, &broker.Frame{Type: broker.FrameFinal, Version: found.Version(), Final: &broker.Final{}})
			c.Weights = []string{"langid=bf16", "listops=int8"}
		}, worker.ErrOtherModel},
		{"the same weights", func(l *broker.Letter, c *worker.ServeConfig) {
			l.Digest, l.Version, c.Weights = found.Digest(), found.Version()+"+int8", []string{"int8"}
		}, nil},
		{"other weights", func(l *broker.Letter, _ *worker.ServeConfig) {
			l.Digest, l.Version = found.Digest(), found.Version()+"+int8"
		}, worker.ErrOtherModel},
		{"other weights than float32", func(l *broker.Letter, c *worker.ServeConfig) {
			l.Version, c.Weights = found.Version(), []string{"bf16"}
		}, worker.ErrOtherModel},
		{"other weights than the request asked for", func(l *broker.Letter, c *worker.ServeConfig) {
			l.Header.Set("Infer-Version", found.Version()) // of no consequence: the worker that gave up had others
			l.Version, c.Weights = found.Version()+"+int8", []string{"int8"}
		}, nil},
		{"none of that name", func(l *broker.Letter, _ *worker.ServeConfig) { l.Model = "other" }, worker.ErrModel},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l, cfg := genuine(), worker.ServeConfig{Models: []string{"g2p-en"}}
			tc.change(l, &cfg)
			_, err := worker.ReplayModel(l, cfg)
			if !errors.Is(err, tc.want) || tc.want == nil && err != nil {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			if l.Version != "" && err != nil && !strings.Contains(err.Error(), strconv.Quote(l.Version)) {
				t.Errorf("%v does not say %s", err, l.Version)
			}
		})
	}
}

// TestReplayOfAWorkersLetter has a worker write the letter of a request that
// makes a model overflow.
func TestReplayOfAWorkersLetter(t *testing.T) {
	t.Parallel()
	spoiled := randomModel(t, "spoiled", 4, func(bias []float32) { bias[5] = 1e38; bias[6] = 1e38 })
	for i := range spoiled.Program().Cells {
		spoil(spoiled.Program().Cells[i])
	}
	server := newServer(t)
	start(t, server, worker.Deps{Models: []*models.Model{spoiled}}, nil)
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	publish(t, nc, "infer.req.spoiled.std.me", "", []byte(`{"input": [3]}`), "Nats-Msg-Id", "overflow01")
	if f := lastFrame(t, out); f.Error == nil {
		t.Fatalf("ended with a %s", f.Type)
	}
	l := onlyLetter(t, server)
	report, err := worker.Replay(t.Context(), l, []*models.Model{spoiled}, nil)
	if err != nil || !report.Equal() || l.Code != broker.CodeNumericalError || l.Digest != report.Digest || l.Version != report.Version || report.Recorded == nil {
		t.Errorf("%v, %+v of %+v", err, report, l)
	}
}

// onlyLetter returns the one letter that there is.
func onlyLetter(t *testing.T, server *broker.Server) *broker.Letter {
	t.Helper()
	letters, err := brokerConn(t, server).Letters(t.Context(), "", 0, 10)
	if err != nil || len(letters) != 1 {
		t.Fatalf("%d letters, %v", len(letters), err)
	}
	return &letters[0]
}

// deadly is the CPU, except that a step ends the process.
type deadly struct{ cellrt.Backend }

func (d deadly) Load(p *cellrt.Program, slots int) (cellrt.Executable, error) {
	x, err := d.Backend.Load(p, slots)
	return deadlyExecutable{x}, err
}

type deadlyExecutable struct{ cellrt.Executable }

func (x deadlyExecutable) NewRunner() cellrt.Runner { return deadlyRunner{x.Executable.NewRunner()} }

type deadlyRunner struct{ cellrt.Runner }

func (deadlyRunner) Run(*cellrt.Cell, []cellrt.Row, []cellrt.Output) int {
	os.Exit(deadlyExit)
	return 0
}

const (
	deadlyExit = 66
	// deadlyWorker tells the test binary that it is a worker that dies, and where
	// its server is.
	deadlyWorker = "TEST_DEADLY_WORKER"
)

// TestReplayOfARequestWhoseWorkersDied has two worker processes die in the middle
// of a request. The fault is in their backend: the replay shows that the request
// is sound.
func TestReplayOfARequestWhoseWorkersDied(t *testing.T) {
	t.Parallel()
	m := randomModel(t, "m", 4, nil)
	change := func(c *worker.Config) { c.AckWait, c.MaxAttempts = time.Second, 2 }
	if url := os.Getenv(deadlyWorker); url != "" {
		brokertest.ExitWithTest()
		cfg := worker.DefaultConfig()
		cfg.NatsURL, cfg.AdminAddress, cfg.Profile = url, "", 0
		change(&cfg)
		w, err := worker.New(cfg, worker.Deps{Models: []*models.Model{m}, Backend: deadly{cpu.New(cpu.Config{})}})
		if err == nil {
			err = w.Run(t.Context())
		}
		t.Fatalf("the worker lives: %v", err)
	}
	server := newServer(t)
	serve := worker.Deps{Models: []*models.Model{m}}
	w := start(t, server, serve, change) // makes the streams
	w.stop()
	w.wait(t)
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	publish(t, nc, "infer.req.m.std.me", "", []byte(`{"input": [3], "max_tokens": 5}`), "Nats-Msg-Id", "survivor01")
	for range 2 {
		p := brokertest.Start(t, []string{deadlyWorker + "=" + server.URL()}, "-test.run=^"+t.Name()+"$")
		select {
		case <-p.Done():
			if err := p.Err(); err == nil || err.Error() != fmt.Sprintf("exit status %d", deadlyExit) {
				t.Fatalf("ended with %v", err)
			}
		case <-time.After(patience):
			t.Fatal("a worker does not die")
		}
	}
	start(t, server, serve, change)
	if f := lastFrame(t, out); f.Error == nil || f.Error.Code != broker.CodeAttemptsExhausted {
		t.Fatalf("ended with a %s: %v", f.Type, f.Error)
	}
	report, err := worker.Replay(t.Context(), onlyLetter(t, server), serve.Models, nil)
	if err != nil || !slices.Equal(fields(report), []string{"type"}) || len(report.Replayed.Tokens) != 5 {
		t.Errorf("%v, %+v", err, report)
	}
}
