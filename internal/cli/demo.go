package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/internal/manual"
	"github.com/cellmq/cellmq/models/zoo"
	"github.com/cellmq/cellmq/worker"
)

// demoModel is the bundled model that texts of the user's go to.
const demoModel = "g2p-en"

// demoRequest is one request of a demo.
type demoRequest struct {
	model, text string
	params      broker.Params
	note        string // of the parameters, for people
}

// demoRequests are what the demo shows when it is given nothing: models of four
// families, and lengths that differ, so that requests leave the batch at
// different steps.
func demoRequests() []demoRequest {
	count := func(n int) *int { return &n }
	real := func(v float64) *float64 { return &v }
	seed := uint64(1)
	return []demoRequest{
		{model: "g2p-en", text: "cellular batching"},
		{model: "g2p-en", text: "the quick brown fox"},
		{model: "g2p-en", text: "queue"},
		{model: "g2p-en", text: "onomatopoeia"},
		{model: "g2p-en", text: "serendipity", params: broker.Params{BeamWidth: count(4)}, note: "beam 4"},
		{model: "kjv-lm", text: "In the beginning", params: broker.Params{MaxTokens: count(48)}},
		{
			model: "kjv-lm", text: "And it came to pass", note: "sampled",
			params: broker.Params{MaxTokens: count(48), Temperature: real(0.7), Seed: &seed},
		},
		{model: "langid", text: "Todos los seres humanos nacen libres"},
		{model: "langid", text: "Tous les êtres humains"},
		{model: "langid", text: "Все люди рождаются свободными"},
		{model: "listops", text: "( ( ( [MAX 2 ) 9 ) ] )"},
		{model: "listops", text: "( ( ( [MIN ( ( ( [MED 7 ) 3 ) ] ) ) 5 ) ] )"},
	}
}

func newDemo(s streams) *cobra.Command {
	model := ""
	cmd := &cobra.Command{
		Use:   "demo [TEXT...]",
		Short: "See it work: broker, worker and client in one process",
		Long: `demo starts a broker with JetStream, a worker with the bundled models, and a
client, all in this process. It publishes requests to all of them at once and
prints what comes back as it comes, then what the step loop did: phonemes of
words, the continuation of a text, the language of a sentence, and the value of
an expression that is a tree.

Texts of your own go to g2p-en, or to --model. Of the settings only
CELLMQ_WEIGHTS and CELLMQ_ISA count.`,
		Example: `  cellmq demo
  cellmq demo "cellular batching" serendipity
  cellmq demo --model langid "Todos los seres humanos nacen libres"`,
		Args: args(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, texts []string) error {
			requests, err := chooseDemo(model, texts)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return demo(ctx, requests, s)
		},
	}
	cmd.Flags().StringVar(&model, "model", "", "the one bundled model to show: "+strings.Join(zoo.Names(), ", "))
	manual.Note(cmd, manual.Notes{Environment: computeEnvironment})
	completeFlag(cmd, "model", fixed(zoo.Names()...))
	return cmd
}

// chooseDemo returns the requests for texts, or those of the demo's own, to one
// model or to all.
func chooseDemo(model string, texts []string) (requests []demoRequest, err error) {
	if model != "" && !slices.Contains(zoo.Names(), model) {
		return nil, usagef("--model %q: it must be one of %s", model, strings.Join(zoo.Names(), ", "))
	}
	for _, text := range texts {
		requests = append(requests, demoRequest{model: cmp.Or(model, demoModel), text: text})
	}
	if len(texts) > 0 {
		return requests, nil
	}
	for _, r := range demoRequests() {
		if model == "" || model == r.model {
			requests = append(requests, r)
		}
	}
	return requests, nil
}

// label is what stands before a request's output.
func (r *demoRequest) label(several bool) string {
	label := r.text
	if r.note != "" {
		label += " (" + r.note + ")"
	}
	if several {
		label = fmt.Sprintf("%-7s  %s", r.model, label)
	}
	return label
}

// demo runs everything and shows it.
func demo(ctx context.Context, requests []demoRequest, s streams) (err error) {
	env, err := worker.DefaultConfig().FromEnv()
	if err != nil {
		return usageError{err}
	}
	cfg := worker.DefaultConfig()
	cfg.Weights, cfg.ISA = env.Weights, env.ISA // how the models compute; the rest is the demo's
	for _, r := range requests {
		if !slices.Contains(cfg.Models, r.model) {
			cfg.Models = append(cfg.Models, r.model)
		}
	}
	if isTerminal(s.out) {
		cfg.FrameInterval = 0 // a frame for each token: the demo shows them come
	} else {
		cfg.FrameInterval = 80 * time.Millisecond // each frame adds a line
	}
	l, err := startLocal(ctx, cfg, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	client, err := broker.NewClient(l.nc, broker.ClientConfig{Name: "demo"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()

	several := len(cfg.Models) > 1
	if _, err := fmt.Fprintf(s.out, "%d requests to %s, through JetStream, all at once:\n\n", len(requests), strings.Join(cfg.Models, ", ")); err != nil {
		return err
	}
	labels := make([]string, len(requests))
	for i := range requests {
		labels[i] = requests[i].label(several)
	}
	before := l.worker.Stats()
	began := time.Now()
	failed, err := showDemo(ctx, client, requests, newBoard(s.out, labels))
	if err != nil {
		return err
	}
	if err := demoTotals(s.out, before, l.worker.Stats(), len(requests), time.Since(began)); err != nil {
		return err
	}
	return failure(failed, len(requests))
}

// showDemo sends every request and shows the frames. A failed request is shown
// and counted.
func showDemo(ctx context.Context, client *broker.Client, requests []demoRequest, board *board) (failed int, err error) {
	var running sync.WaitGroup
	var mu sync.Mutex
	for i, r := range requests {
		stream, err := client.Request(ctx, r.model, broker.RequestOptions{Input: broker.Input{Text: r.text}, Params: r.params})
		if err != nil {
			return 0, err
		}
		running.Go(func() {
			for frame, err := range stream.Frames() {
				if err != nil {
					mu.Lock()
					failed++
					mu.Unlock()
					board.fail(i, err)
					return
				}
				board.show(i, &frame)
			}
		})
	}
	running.Wait()
	return failed, errors.Join(ctx.Err(), board.err)
}

// demoTotals prints what the step loop did between two moments.
func demoTotals(out io.Writer, before, after cellrt.Stats, requests int, took time.Duration) error {
	steps := after.Steps - before.Steps
	rows := after.Rows - before.Rows
	tokens := after.Tokens - before.Tokens
	_, err := fmt.Fprintf(out, "\nrequests %d   tokens %d   tokens/s %.0f   steps %d   rows per step: mean %.1f, max %d   padding %d\n",
		requests, tokens, float64(tokens)/took.Seconds(), steps,
		float64(rows)/float64(max(steps, 1)), after.MaxRows, after.PaddedRows-before.PaddedRows)
	return err
}
