package worker

import (
	"errors"
	"time"

	"github.com/cellmq/cellmq/broker"
)

var (
	// errTakenOver: the same request was delivered again, to this worker, and
	// the run of the newer lease answers it.
	errTakenOver = errors.New("taken over by a newer lease")
	// errAnswered: the request had its terminal frame, but the server has lost
	// the acknowledgement.
	errAnswered = errors.New("answered before")
)

// answerLife is how long an answer is remembered: a request is not delivered
// again much later than that.
const answerLife = 15 * time.Minute

// storedRequest is one message of the queue. The time at which it was stored
// tells it from an earlier one whose id is used again.
type storedRequest struct {
	requestKey
	stored int64 // unix ns
}

func storedOf(r *run) storedRequest {
	return storedRequest{requestKey: r.key(), stored: r.req.Published.UnixNano()}
}

// takeovers sees to it that this worker answers a stored request once, however
// often it is delivered to it: a server that lost a consumer's state, or a
// consumer made anew, delivers what is running. It belongs to the publisher's
// goroutine, which makes the order of deliveries and answers total.
type takeovers struct {
	running  map[storedRequest]*run
	answered *shares[storedRequest, uint64] // the session of the answer; nil: none yet
}

// enter takes a run in. It returns the older run that it takes over from, or
// errAnswered for a request answered over this connection; an answer over an
// earlier one may not have reached the server.
func (t *takeovers) enter(r *run, session uint64, now time.Time) (older *run, err error) {
	if !r.req.Durable {
		return nil, nil
	}
	request := storedOf(r)
	if t.answered != nil {
		if s, ok := t.answered.get(request, now); ok && s == session {
			return nil, errAnswered
		}
	}
	older = t.running[request]
	if older != nil {
		succeed(r.delivery.Lease, older.delivery.Lease)
	}
	if t.running == nil {
		t.running = map[storedRequest]*run{}
	}
	t.running[request] = r
	return older, nil
}

// succeed gives a lease a higher number than the one it follows: the server
// may have begun to count anew.
func succeed(lease, older *broker.Lease) {
	if lease.Epoch < older.Epoch || lease.Epoch == older.Epoch && lease.Attempt <= older.Attempt {
		lease.Epoch, lease.Attempt = older.Epoch, older.Attempt+1
	}
}

// leave takes a run out; answered says that its terminal frame was sent.
func (t *takeovers) leave(r *run, answered bool, session uint64, now time.Time) {
	if !r.req.Durable {
		return
	}
	request := storedOf(r)
	if t.running[request] == r {
		delete(t.running, request)
	}
	if !answered {
		return
	}
	if t.answered == nil {
		t.answered = newShares[storedRequest, uint64](maxRemembered, answerLife)
	}
	request.requestKey = request.clone()
	t.answered.add(request, session, now)
}
