//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cellmq/cellmq/broker"
)

// trickle is how often the soak sends a request.
const trickle = 50 * time.Millisecond

// residue is what restarts could leave behind in a server.
type residue struct {
	streams, consumers []string
	files              int
}

// look lists what the server has.
func look(ctx context.Context, js jetstream.JetStream, dir string) (r residue, err error) {
	streams := js.ListStreams(ctx)
	for s := range streams.Info() {
		r.streams = append(r.streams, s.Config.Name)
	}
	err = streams.Err()
	for _, name := range r.streams {
		s, failed := js.Stream(ctx, name)
		if failed != nil {
			return r, failed
		}
		names := s.ConsumerNames(ctx)
		for consumer := range names.Name() {
			r.consumers = append(r.consumers, name+" "+consumer)
		}
		err = errors.Join(err, names.Err())
	}
	slices.Sort(r.streams)
	slices.Sort(r.consumers)
	walked := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			return nil
		}
		if err == nil && d.Type().IsRegular() {
			r.files++
		}
		return err
	})
	return r, errors.Join(err, walked)
}

// TestManyRestarts kills and ends a worker in turn, ten times, or twenty in the full
// run, while requests come one after the other: each is answered once, and the
// server has what it had after the first start.
func TestManyRestarts(t *testing.T) {
	t.Parallel()
	restarts := 10
	if *full {
		restarts = 20
	}
	dir := t.TempDir()
	server, err := broker.StartServer(t.Context(), broker.ServerConfig{DataDir: dir, Port: broker.PortRandom})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	w := newMember(t, "worker", server.URL(), 0, 1, "CELLMQ_MODELS=g2p-en", "CELLMQ_ACK_WAIT=1s")
	nc, err := broker.Dial(t.Context(), server.URL(), "soak", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	var before residue
	eventually(t, "the worker has made what it needs", func(ctx context.Context) error {
		before, err = look(ctx, js, dir)
		if err == nil && (len(before.streams) != 6 || len(before.consumers) != 4) { // a queue for each priority, and the reconciler
			err = fmt.Errorf("%+v", before)
		}
		return err
	})
	client, err := broker.NewClient(nc, broker.ClientConfig{Name: "soak"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }() // with its connection

	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	over, stop := context.WithCancel(ctx)
	trickled := make(chan []*outcome, 1)
	go func() { trickled <- drip(ctx, over, &sender{nc, client}) }()
	for i := range restarts {
		wait(ctx, 100*time.Millisecond)
		end := w.kill
		if i%2 == 1 {
			end = func() error { return w.terminate(false) }
		}
		if err := errors.Join(end(), w.start(ctx)); err != nil {
			t.Fatalf("restart %d: %v", i, err)
		}
		if err := w.serving(); err != nil {
			t.Fatalf("restart %d: %v", i, err)
		}
	}
	stop()
	got := <-trickled
	again := 0
	for i, o := range got {
		if err := o.check(broker.ModeStream); err != nil {
			t.Errorf("request %d: %v", i, err)
		} else if diff := o.differs(got[0]); diff != "" {
			t.Errorf("request %d: %s", i, diff)
		}
		if o.final.Attempt > 1 {
			again++
		}
	}
	t.Logf("%d requests, %d of them took more than one attempt", len(got), again)
	checkStreams(t, server.URL(), len(got))
	eventually(t, "the server has what it had", func(ctx context.Context) error {
		const blocks = 6 // of messages, one more for each stream
		after, err := look(ctx, js, dir)
		if err != nil {
			return err
		}
		if !slices.Equal(after.streams, before.streams) || !slices.Equal(after.consumers, before.consumers) || after.files > before.files+blocks {
			return fmt.Errorf("%+v before, %+v after", before, after)
		}
		return nil
	})
}

// drip sends one request after the other until over, and waits for the answers,
// which come in any order.
func drip(ctx, over context.Context, c *sender) []*outcome {
	var out []*outcome
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := 0; wait(over, trickle); n++ {
		a := ask{model: "g2p-en", options: broker.RequestOptions{
			ID: fmt.Sprintf("soak%06d", n), Mode: broker.ModeStream, Input: broker.Input{Text: "cellular batching gathers steps"},
		}}
		all.Go(func() {
			o := a.perform(ctx, c)
			mu.Lock()
			defer mu.Unlock()
			out = append(out, o)
		})
	}
	all.Wait()
	return out
}
