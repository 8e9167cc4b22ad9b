//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

// faults breaks things until it is stopped. Its counters are valid afterwards.
type faults struct {
	t       *testing.T
	cluster *brokertest.ClusterT
	workers []*member
	seed    uint64

	kills, pauses, servers, handedBack int
}

// run starts breaking; the returned function stops it, and waits until every
// worker and server runs again.
func (f *faults) run(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	for i, loop := range []func(context.Context, *rand.Rand) error{f.breakWorkers, f.breakServers, f.handBack} {
		r := rand.New(rand.NewPCG(f.seed, uint64(i)+100))
		all.Go(func() {
			if err := loop(ctx, r); err != nil {
				f.t.Error(err)
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// between is a random time from low to high.
func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)))
}

// breakWorkers kills or stops a worker, one at a time. Three in four of them
// serve by then; one that is only ever killed while it loads its models answers
// nobody.
func (f *faults) breakWorkers(ctx context.Context, r *rand.Rand) error {
	for {
		if !wait(ctx, between(r, 2*time.Second, 5*time.Second)) {
			return nil
		}
		w, what, down := f.workers[r.IntN(len(f.workers))], r.IntN(3), between(r, 0, 2*time.Second)
		if err := w.alive(); err != nil {
			return err
		}
		if r.IntN(4) > 0 {
			if err := w.serving(); err != nil {
				return err
			}
		}
		if what == 0 { // sometimes longer than a lease lasts
			f.pauses++
			if err := w.pause(ctx, between(r, time.Second, 14*time.Second)); err != nil {
				return err
			}
			continue
		}
		f.kills++
		err := w.kill()
		wait(ctx, down)
		if err := errors.Join(err, w.start(context.WithoutCancel(ctx))); err != nil {
			return err
		}
	}
}

// breakServers kills a server or shuts it down, the next one when the cluster
// has recovered.
func (f *faults) breakServers(ctx context.Context, r *rand.Rand) error {
	for {
		if !wait(ctx, between(r, 8*time.Second, 16*time.Second)) {
			return nil
		}
		victim, leader, kill, down := r.IntN(f.cluster.Size()), r.IntN(2) == 0, r.IntN(3) > 0, between(r, 0, 4*time.Second)
		recovery, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		err := f.breakServer(recovery, victim, leader, kill, down)
		cancel()
		if err != nil {
			return err
		}
	}
}

func (f *faults) breakServer(ctx context.Context, victim int, leader, kill bool, down time.Duration) error {
	if leader {
		var err error
		if victim, err = f.cluster.Leader(ctx, "INFER"); err != nil {
			return err
		}
	}
	f.servers++
	if kill {
		f.cluster.Kill(victim)
	} else {
		f.cluster.Shutdown(victim)
	}
	wait(ctx, down)
	return errors.Join(f.cluster.Restart(ctx, victim), f.cluster.Await(ctx))
}

// handBack hands back deliveries that others hold, at once or after a while:
// the server delivers them again although somebody works on them.
func (f *faults) handBack(ctx context.Context, r *rand.Rand) error {
	nc, err := broker.Dial(ctx, f.cluster.URL(), "gremlin", nil)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	models := []string{"kjv-lm", "g2p-en", "langid", "listops"}
	done := map[uint64]bool{} // each delivery counts as an attempt: once for a request
	for wait(ctx, between(r, 50*time.Millisecond, 250*time.Millisecond)) {
		name := models[r.IntN(len(models))] + "_" + pick(r, "high", "std", "low")
		payload := pick(r, "-NAK", "-NAK", fmt.Sprintf(`-NAK {"delay":%d}`, between(r, time.Millisecond, 3*time.Second)))
		if f.handBackOne(ctx, nc, js, name, payload, r, done) {
			f.handedBack++
		}
	}
	return nil
}

// handBackOne hands back some delivery of a consumer. Nothing comes of it while
// the cluster has no leader, or the delivery is settled.
func (f *faults) handBackOne(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, name, payload string, r *rand.Rand, done map[uint64]bool) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	consumer, err := js.Consumer(ctx, "INFER", name)
	if err != nil {
		return false
	}
	info := consumer.CachedInfo()
	if info.NumAckPending == 0 || info.Delivered.Stream <= info.AckFloor.Stream {
		return false
	}
	sequence := info.Delivered.Stream - uint64(r.Int64N(int64(min(info.Delivered.Stream-info.AckFloor.Stream, 8))))
	if done[sequence] {
		return false
	}
	done[sequence] = true
	subject := fmt.Sprintf("$JS.ACK.INFER.%s.1.%d.%d.%d.0", name, sequence, info.Delivered.Consumer, time.Now().UnixNano())
	return nc.Publish(subject, []byte(payload)) == nil
}
