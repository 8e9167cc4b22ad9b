package worker

import (
	"strings"
	"sync/atomic"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/tokenizer"
	"github.com/cellmq/cellmq/worker/internal/versions"
)

// run is one request on this worker: a lease, a sequence and a token stream.
// doc.go has its states. Three parties touch it: the admitting goroutine, which
// builds it; the runtime, through the outbox; and the publisher, which alone
// emits frames and closes it.
type run struct {
	delivery *broker.Delivery
	req      *broker.Request
	stream   *broker.TokenStream
	arrived  time.Time // when the delivery came

	// Set by admission before the outbox knows the run; nil as far as admission
	// refused it.
	model    string       // the request's, once it is known to be served here
	meter    *modelMeter  // of that model; nil with it
	wants    versions.Key // the version that the rule gives it; zero: not known
	served   *served
	pinned   bool // served is written down
	unfolded *models.Request
	seq      *cellrt.Sequence
	admitted time.Time
	refusal  *broker.Error
	expiry   *time.Timer         // ends the run at its deadline; nil without one
	attempt  int                 // the server's number of the delivery
	excused  int                 // earlier attempts that are nobody's failure
	recalled bool                // excused and past are what is stored
	past     *broker.State       // of an earlier attempt; nil: none
	from     *cellrt.Checkpoint  // where it goes on; nil: at its beginning
	stored   *broker.StoredFinal // the answer that an earlier attempt gave

	// Set by whoever extends leases.
	cutOff atomic.Bool // the lease could not be extended for want of a connection

	// Guarded by the outbox's lock.
	tokens      []cellrt.Token // append-only
	proposal    []cellrt.Token // the output of a search as it looks now
	revision    int            // proposals so far
	firstToken  time.Time
	lastToken   time.Time
	ended       bool
	reason      cellrt.Reason
	err         error // why it ended, when not by itself
	queued      bool  // waits in the outbox
	submitted   bool  // the runtime has the sequence
	stopCause   error // first cause somebody wanted it stopped for, or a cancellation after a hand-back
	released    bool  // it goes back to the queue, nobody can cancel it here any more
	repeatAsked bool  // a reader lacks what was sent
	word        *word
	checkpoint  *cellrt.Checkpoint // the latest

	// The publisher's.
	view     []cellrt.Token // what it has collected of tokens
	over     bool           // what it has collected of ended
	draft    []cellrt.Token // what it has collected of proposal
	drafted  int            // revision of draft
	shown    int            // revision sent last
	joined   bool           // accepted was due
	repeat   bool           // what was sent is to be sent again
	repeated time.Time      // when it was
	text     *tokenizer.Text
	decoded  strings.Builder    // text of the tokens decoded
	ids      []int32            // ids of the tokens decoded
	sent     mark               // how much of both the connection has taken
	session  uint64             // the connection that took it
	last     time.Time          // of the last frame
	end      *ending            // how it ends, once that is decided
	heard    *word              // what it has collected of word
	saved    *cellrt.Checkpoint // what it has collected of checkpoint
	kept     *cellrt.Checkpoint // the latest of these that it had stored
	retryAt  time.Time          // next try to close after a refusal
	giveUp   time.Time          // no more tries after this; zero before the first
	mute     error              // why it says nothing any more: taken over, or answered
}

// mark is a place in a run's output.
type mark struct{ tokens, text int }

// newRun starts the life of a delivery on this worker.
func newRun(d *broker.Delivery, stream *broker.TokenStream, now time.Time) *run {
	return &run{delivery: d, req: d.Request, stream: stream, arrived: now, attempt: int(d.Lease.Attempt)}
}

// key names the run for cancellation.
func (r *run) key() requestKey { return requestKey{client: r.req.Client, id: r.req.ID} }

// prepare gives the run its unfolded request, and room so that emitting tokens
// does not allocate.
func (r *run) prepare(unfolded *models.Request) {
	r.unfolded = unfolded
	r.text = unfolded.NewText()
	tokens := min(unfolded.MaxTokens, 512)
	r.tokens = make([]cellrt.Token, 0, tokens)
	r.ids = make([]int32, 0, tokens)
	r.decoded.Grow(4 * tokens)
}

// phase says what a run is doing, for heartbeats.
func (r *run) phase() string {
	switch {
	case len(r.view) > 0:
		return "decode"
	case r.drafted > 0:
		return "search"
	default:
		return "encode"
	}
}

// modelLabel is the model's name for metrics: bounded, whatever clients send.
func (r *run) modelLabel() string {
	if r.model == "" {
		return "unknown"
	}
	return r.model
}

// version is the one that the request ran on, here or, when it came too often,
// before. It reports false when no version is known to have run it.
func (r *run) version() (versions.Key, bool) {
	switch {
	case r.served != nil:
		return r.served.key, true
	case r.past != nil && r.past.Digest != "":
		return versions.Key{Model: r.req.Model, Digest: r.past.Digest}, true
	}
	return r.wants, r.wants != versions.Key{}
}

// timing returns where the request's time went, seen at its end.
func (r *run) timing(now time.Time) broker.Timing {
	t := broker.Timing{Total: max(now.Sub(r.req.Published), 0)}
	t.Broker = max(r.arrived.Sub(r.req.Published), 0)
	if !r.admitted.IsZero() {
		t.Queue = r.admitted.Sub(r.arrived)
	}
	if !r.firstToken.IsZero() {
		t.FirstToken = r.firstToken.Sub(r.arrived)
	}
	return t
}
