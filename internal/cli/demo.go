package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/worker"
)

// demoModel is the bundled model that the demo shows.
const demoModel = "g2p-en"

// demoTexts are what the demo shows when it is given nothing: lengths differ,
// so that requests leave the batch at different steps.
func demoTexts() []string {
	return []string{
		"hello world", "cellular batching", "a", "recurrent neural network", "queue",
		"onomatopoeia", "serendipity", "jetstream", "the quick brown fox", "phoneme",
	}
}

func newDemo(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "demo [TEXT...]",
		Short: "See it work: broker, worker and client in one process",
		Long: `demo starts a broker with JetStream, a worker with the bundled model g2p-en, and
a client, all in this process. It publishes some words at once and prints their
phonemes as the tokens arrive, then what the step loop did.`,
		Example: `  cellmq demo
  cellmq demo "cellular batching" serendipity`,
		Args: args(cobra.ArbitraryArgs),
		RunE: func(cmd *cobra.Command, texts []string) error {
			if len(texts) == 0 {
				texts = demoTexts()
			}
			ctx, stop := interruptible(cmd.Context())
			defer stop()
			return demo(ctx, texts, s)
		},
	}
}

// demo runs everything and shows it.
func demo(ctx context.Context, texts []string, s streams) (err error) {
	cfg := worker.DefaultConfig()
	cfg.Models = []string{demoModel}
	cfg.FrameInterval = 0 // a frame for each token: the demo shows them come
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

	if _, err := fmt.Fprintf(s.out, "%d requests to %s, through JetStream, all at once:\n\n", len(texts), demoModel); err != nil {
		return err
	}
	before := l.worker.Stats()
	began := time.Now()
	board := newBoard(s.out, texts)
	failed, err := demoRequests(ctx, client, texts, board)
	if err != nil {
		return err
	}
	if err := demoTotals(s.out, before, l.worker.Stats(), len(texts), time.Since(began)); err != nil {
		return err
	}
	return failure(failed, len(texts))
}

// demoRequests sends every text and shows the frames. A failed request is
// shown and counted.
func demoRequests(ctx context.Context, client *broker.Client, texts []string, board *board) (failed int, err error) {
	var requests sync.WaitGroup
	var mu sync.Mutex
	for i, text := range texts {
		stream, err := client.Request(ctx, demoModel, broker.RequestOptions{Input: broker.Input{Text: text}})
		if err != nil {
			return 0, err
		}
		requests.Go(func() {
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
	requests.Wait()
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
