package worker

import (
	"context"
	"sync"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// How often the server is asked for the depths of the queues, at most and only when
// somebody wants to know, and how long its answer is waited for.
const (
	depthsEvery = 2 * time.Second
	depthsWait  = time.Second
)

// queueDepths are how many requests wait for the models that a worker serves, for
// scrapes and for who watches. Its methods are safe for concurrent use.
type queueDepths struct {
	asking sync.Mutex // held while the server is asked
	asked  time.Time  // when the last question was put; under asking

	mu     sync.Mutex
	depths []broker.QueueDepth // never written to once it is here
	at     time.Time           // when depths were true; zero: never
}

// refresh asks the server unless somebody did a moment ago, and waits for its
// answer. What was known before stays when it does not answer.
func (q *queueDepths) refresh(conn *broker.Conn, models []string) {
	q.asking.Lock()
	defer q.asking.Unlock()
	if !conn.Connected() || !q.asked.IsZero() && time.Since(q.asked) < depthsEvery {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), depthsWait)
	defer cancel()
	q.asked = time.Now()
	depths, err := conn.Depths(ctx, models)
	if err != nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.depths, q.at = depths, q.asked
}

// known returns what is known, to be read only, and when it was true.
func (q *queueDepths) known() ([]broker.QueueDepth, time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.depths, q.at
}

// live returns what is known as snapshots show it, by model.
func (q *queueDepths) live(now time.Time) map[string]*broker.LiveQueued {
	depths, at := q.known()
	out := map[string]*broker.LiveQueued{}
	for _, d := range depths {
		m := out[d.Model]
		if m == nil {
			m = &broker.LiveQueued{Age: max(now.Sub(at), 0).Milliseconds()}
			out[d.Model] = m
		}
		switch d.Priority {
		case broker.High:
			m.High = d.Waiting
		case broker.Std:
			m.Std = d.Waiting
		case broker.Low:
			m.Low = d.Waiting
		}
	}
	return out
}
