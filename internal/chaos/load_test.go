//go:build unix

package chaos_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// load is an open loop of requests: they are sent at their times, whatever becomes
// of those before.
type load struct {
	c    *sender
	over context.CancelFunc
	done chan struct{}
	all  sync.WaitGroup

	mu    sync.Mutex
	now   string // the phase
	got   []*answered
	spans map[string][]time.Duration
}

// answered is a request of a load.
type answered struct {
	*outcome
	id   string
	ask  int
	mode broker.Mode
}

func startLoad(t *testing.T, url string, rate float64) *load {
	t.Helper()
	sending, over := context.WithCancel(t.Context())
	l := &load{c: dial(t, url, "load"), now: "before", over: over, done: make(chan struct{}), spans: map[string][]time.Duration{}}
	go l.run(t.Context(), sending, time.Duration(float64(time.Second)/rate))
	return l
}

func (l *load) run(ctx, sending context.Context, pace time.Duration) {
	defer close(l.done)
	next := time.Now()
	for n := 0; wait(sending, time.Until(next)); n++ {
		due := next
		next = next.Add(pace)
		l.mu.Lock()
		phase := l.now
		l.mu.Unlock()
		l.all.Go(func() {
			one := &answered{id: fmt.Sprintf("load%08d", n), ask: n % upgradeAsks}
			a := randomAsk("m", one.id, one.ask)
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			one.mode = a.options.Mode
			one.outcome = l.once(ctx, &a)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.got = append(l.got, one)
			l.spans[phase] = append(l.spans[phase], time.Since(due))
		})
	}
}

// once sends a request, once: nothing may refuse it.
func (l *load) once(ctx context.Context, a *ask) *outcome {
	o := &outcome{}
	stream, err := l.c.client.Request(ctx, a.model, a.options)
	if err == nil {
		err = o.read(stream, nil)
	}
	o.err = err
	return o
}

func (l *load) phase(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = name
}

// stop sends no more requests and waits for the answers.
func (l *load) stop() []*answered {
	l.over()
	<-l.done
	l.all.Wait()
	return l.got
}

// latencies reports how long requests took, by the phase in which they were due.
func (l *load) latencies(t *testing.T) {
	t.Helper()
	for _, phase := range []string{"before", "during", "between"} {
		spans := l.spans[phase]
		if len(spans) == 0 {
			t.Errorf("no request was sent %s upgrades", phase)
			continue
		}
		slices.Sort(spans)
		at := func(q float64) time.Duration {
			return spans[int(q*float64(len(spans)-1))].Round(100 * time.Microsecond)
		}
		t.Logf("%s upgrades: %d requests, p50 %v, p99 %v, longest %v", phase, len(spans), at(0.5), at(0.99), at(1))
	}
}
