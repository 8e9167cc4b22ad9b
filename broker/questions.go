package broker

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// maxQuestions bounds the questions of all clients that wait at an endpoint.
	maxQuestions = 4096
	// floodPause is the shortest time between two lines about dropped questions.
	floodPause = time.Minute
)

// questions are what clients ask and one goroutine looks up, one after the other.
// Clients take turns, each with its oldest question, and when too many wait the
// client with the most loses its oldest one: so nobody waits behind more than one
// question of each other client for each of its own, however many these ask. A
// question that is dropped has no answer, as one that the server lost. It is safe
// for concurrent use.
type questions struct {
	endpoint string // for the log
	log      *slog.Logger
	lost     func() // called for each that is dropped
	// ready holds a signal when something waits. Capacity 1: run looks for all.
	ready chan struct{}

	mu      sync.Mutex
	waiting shared[func()] // each looks one up and answers it
	told    time.Time      // of the last line about dropped ones
}

func newQuestions(endpoint string, log *slog.Logger, lost func()) *questions {
	return &questions{endpoint: endpoint, log: log, lost: lost, ready: make(chan struct{}, 1)}
}

// ask has answer called by run when it is the client's turn. It does not block.
func (q *questions) ask(client string, answer func()) {
	now := time.Now()
	q.mu.Lock()
	q.waiting.add(client, answer, 1)
	var dropped *portion[func()]
	tell := false
	if q.waiting.len() > maxQuestions {
		dropped = q.waiting.surplus()
		q.waiting.remove(dropped)
		if tell = now.Sub(q.told) >= floodPause; tell {
			q.told = now
		}
	}
	q.mu.Unlock()
	if dropped != nil {
		q.lost()
	}
	select {
	case q.ready <- struct{}{}:
	default:
	}
	if tell {
		q.log.Warn("too many questions wait, the client with the most loses some", slog.String("endpoint", q.endpoint),
			slog.String("client", dropped.owner.name))
	}
}

// next takes out the question whose turn it is, nil when none waits.
func (q *questions) next() func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p := q.waiting.next(); p != nil {
		return p.value
	}
	return nil
}

// run answers questions until ctx ends.
func (q *questions) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.ready:
		}
		for answer := q.next(); answer != nil && ctx.Err() == nil; answer = q.next() {
			answer()
		}
	}
}
