package broker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// How finals are stored.
const (
	maxStoring  = 4096                   // finals of one store without a verdict
	storeBeat   = 50 * time.Millisecond  // the pace of what is due without an answer
	storeRetry  = 250 * time.Millisecond // after a failure that passes
	storesEvery = time.Minute            // the streams are ensured so often
)

// Verdict says whose final is stored. Exactly one of its fields is set.
type Verdict struct {
	// Mine: this final is the stored one, now or since an attempt to store it
	// whose confirmation was lost.
	Mine bool
	// Other is the final that was stored before, of another lease.
	Other *StoredFinal
	// Err says why there is no verdict: [ErrNoVerdict] when the time was over,
	// [ErrClosed], [ErrFrameTooLarge] when the stream takes no message of that size,
	// or another refusal by the server that would only come again. After
	// ErrNoVerdict and ErrClosed the final may be stored all the same.
	Err error
}

// Finals stores finals, many at a time. It also ensures the streams of records
// anew when one is missing, after a reconnection, and every minute. It is safe for
// concurrent use.
//
// A final is published with the condition that its subject has none. A malformed
// record counts as none and is replaced, on the condition that it is still the
// last. Each answer moves its entry on:
//
//	          ┌─────── silence, in process, no stream ───────┐
//	          v                                              │
//	Store ─> put ── confirmed ──────────────────────────> Mine
//	          │ ^                                            ^
//	   there  │ │ gone since                                 │
//	   is one v │                                            │
//	         look ── it bears our lease ─────────────────────┘
//	          └───── it bears another ──────────────────> Other
type Finals struct {
	subjects subjects
	stream   string
	publish  func(*nats.Msg) error
	ensure   func(context.Context) error
	// inbox.<n> gets the answers about entry n.
	inbox   string
	answers chan *nats.Msg
	// changed tells that the connection is back, wake that there is an entry.
	changed <-chan nats.Status
	wake    chan struct{}
	ctx     context.Context //nolint:containedctx // ends the goroutines when the store is closed
	cancel  context.CancelFunc
	running sync.WaitGroup
	release func() error // of the subscription

	mu      sync.Mutex
	entries map[uint64]*storing
	last    uint64
	closed  bool
}

// storing is a final without a verdict. Its changing fields are guarded by the
// store's mutex.
type storing struct {
	final *StoredFinal
	put   *nats.Msg
	until time.Time
	done  func(Verdict)

	look bool      // the next question is what is stored
	next time.Time // when to ask again without an answer
	last error     // the failure before
}

// Finals returns a store of finals on this connection. Close it before the
// connection.
func (c *Conn) Finals() (*Finals, error) {
	f := newFinals(c.subjects, c.cfg.Stream.finals(), c.nc.NewInbox(), c.nc.PublishMsg, c.ensureStores)
	sub, err := c.nc.ChanSubscribe(f.inbox+".*", f.answers)
	if err != nil {
		return nil, fmt.Errorf("subscribe to verdicts: %w", err)
	}
	status := c.nc.StatusChanged(nats.CONNECTED)
	f.changed = status
	f.release = sync.OnceValue(func() error {
		c.nc.RemoveStatusListener(status)
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			return fmt.Errorf("end verdicts: %w", err)
		}
		return nil
	})
	f.running.Go(f.run)
	return f, nil
}

func newFinals(s subjects, stream, inbox string, publish func(*nats.Msg) error, ensure func(context.Context) error) *Finals {
	f := &Finals{
		subjects: s, stream: stream, inbox: inbox, publish: publish, ensure: ensure,
		answers: make(chan *nats.Msg, 2*maxStoring), // each entry's, and late ones
		wake:    make(chan struct{}, 1),
		release: func() error { return nil },
		entries: map[uint64]*storing{},
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Store stores s unless a final of its request is stored already. It does not
// block: done is called once with the verdict, from the goroutine of f, perhaps
// before Store returns, and must not block either. It goes on asking until the
// time until, through elections and disconnections. The same final may be stored
// again after [ErrNoVerdict].
//
// An error means that nothing was sent and done is not called: [ErrStoreFull]
// when the verdicts of 4096 finals are still to come, [ErrFrameTooLarge],
// [ErrClosed], [ErrBadRecord]. s belongs to f until done is called.
func (f *Finals) Store(s *StoredFinal, until time.Time, done func(Verdict)) error {
	m, err := s.message(f.subjects.final(s.Client, s.ID))
	if err != nil {
		return fmt.Errorf("store final: %w", err)
	}
	e := &storing{final: s, put: m, until: until, done: done, next: time.Now().Add(answerWait)}
	f.mu.Lock()
	if f.closed || len(f.entries) >= maxStoring {
		defer f.mu.Unlock()
		if f.closed {
			return fmt.Errorf("store final: %w", ErrClosed)
		}
		return ErrStoreFull
	}
	f.last++
	n := f.last
	m.Reply = f.inbox + "." + strconv.FormatUint(n, 10)
	f.entries[n] = e
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
	if err := f.publish(m); err != nil {
		return f.unsent(n, err)
	}
	return nil
}

// unsent takes a failure of the first publication: one that passes is as good
// as silence.
func (f *Finals) unsent(n uint64, err error) error {
	if !errors.Is(err, nats.ErrMaxPayload) && !errors.Is(err, nats.ErrConnectionClosed) {
		f.again(n, storeRetry, err)
		return nil
	}
	f.mu.Lock()
	_, open := f.entries[n]
	delete(f.entries, n)
	f.mu.Unlock()
	switch {
	case !open: // closed meanwhile: done was called
		return nil
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("store final: %w", ErrFrameTooLarge)
	}
	return fmt.Errorf("store final: %w: %w", ErrClosed, err)
}

// Close ends the store. Finals without a verdict get [ErrClosed]; when Close
// returns done is called no more. More calls than one do no harm; none may come
// from done.
func (f *Finals) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.cancel()
	f.running.Wait()
	return f.release()
}

// run is the goroutine of f.
func (f *Finals) run() {
	beat, beating := time.NewTimer(storeBeat), true
	defer beat.Stop()
	regular := time.NewTicker(jitter(storesEvery))
	defer regular.Stop()
	ensuring, ensured := false, make(chan struct{}, 1)
	ensure := func() {
		if ensuring {
			return
		}
		ensuring = true
		f.running.Go(func() {
			_ = f.ensure(f.ctx) // it comes again, with the next answer or the next minute
			ensured <- struct{}{}
		})
	}
	for {
		select {
		case m := <-f.answers:
			if f.answer(m) {
				ensure()
			}
		case <-beat.C:
			if beating = f.overdue(time.Now()); beating {
				beat.Reset(storeBeat)
			}
		case <-f.wake:
			if !beating {
				beat.Reset(storeBeat)
				beating = true
			}
		case <-f.changed:
			f.hurry()
			ensure()
		case <-regular.C:
			ensure()
		case <-ensured:
			ensuring = false
		case <-f.ctx.Done():
			f.giveUp()
			return
		}
	}
}

// answer takes what the server says of an entry, and reports whether the
// stream is missing.
func (f *Finals) answer(m *nats.Msg) (missing bool) {
	n := turnOf(m.Subject)
	f.mu.Lock()
	e := f.entries[n]
	look := e != nil && e.look
	f.mu.Unlock()
	if e == nil {
		return false
	}
	if m.Header.Get(headerStatus) == statusNobody {
		f.turn(n, false, storeRetry, nats.ErrNoResponders)
		return true
	}
	var r apiReply
	if err := json.Unmarshal(m.Data, &r); err != nil {
		f.again(n, storeRetry, fmt.Errorf("answer of the server: %w", err))
		return false
	}
	if r.Type != "" {
		if look { // or it was asked before the entry moved on
			f.found(n, e, &r)
		}
		return false
	}
	switch {
	case r.Error == nil:
		f.end(n, Verdict{Mine: true})
	case r.Error.ErrCode == apiWrongLast:
		if !look {
			f.turn(n, true, 0, r.Error)
		}
	case r.Error.ErrCode == apiInProcess:
		f.again(n, storeBeat, r.Error)
	case r.Error.passes():
		f.again(n, storeRetry, r.Error)
		return r.Error.ErrCode == apiNoStream
	case r.Error.ErrCode == apiTooLarge:
		f.end(n, Verdict{Err: fmt.Errorf("store final: %w: %w", ErrFrameTooLarge, r.Error)})
	default:
		f.end(n, Verdict{Err: fmt.Errorf("store final: %w", r.Error)})
	}
	return false
}

// found takes what is stored.
func (f *Finals) found(n uint64, e *storing, r *apiReply) {
	rec, err := r.record()
	var other *StoredFinal
	if err == nil {
		other, err = f.subjects.storedFinal(rec)
	}
	switch {
	case errors.Is(err, ErrNotStored): // it was dropped since
		f.inPlaceOf(n, 0)
		f.turn(n, false, storeBeat, err)
	case errors.Is(err, ErrBadRecord) && r.Message != nil: // no worker wrote it
		f.inPlaceOf(n, r.Message.Sequence)
		f.turn(n, false, 0, err)
	case errors.Is(err, ErrBadRecord):
		f.end(n, Verdict{Err: fmt.Errorf("read stored final: %w", err)})
	case err != nil:
		f.turn(n, false, storeRetry, err)
	case other.lease() == e.final.lease() && other.Request == e.final.Request:
		f.end(n, Verdict{Mine: true})
	default:
		f.end(n, Verdict{Other: other})
	}
}

// inPlaceOf has an entry stored on the condition that the last message of its
// subject is the one at a sequence, 0 when there must be none.
func (f *Finals) inPlaceOf(n, sequence uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.entries[n]; e != nil {
		m := *e.put
		m.Header = maps.Clone(m.Header)
		m.Header[headerExpectedLast] = []string{strconv.FormatUint(sequence, 10)}
		e.put = &m
	}
}

// turn sets the next question about an entry, and asks it after a wait.
func (f *Finals) turn(n uint64, look bool, wait time.Duration, reason error) {
	f.mu.Lock()
	if e := f.entries[n]; e != nil {
		e.look = look
	}
	f.mu.Unlock()
	f.again(n, wait, reason)
	if wait == 0 {
		f.ask(n, time.Now())
	}
}

// again makes an entry due after a wait.
func (f *Finals) again(n uint64, wait time.Duration, reason error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.entries[n]; e != nil {
		e.next, e.last = time.Now().Add(wait), reason
	}
}

// hurry makes all entries due: what was sent on a lost connection may be lost.
func (f *Finals) hurry() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.entries {
		e.next = time.Time{}
	}
}

// ask sends the next question about an entry.
func (f *Finals) ask(n uint64, now time.Time) {
	f.mu.Lock()
	e := f.entries[n]
	if e == nil {
		f.mu.Unlock()
		return
	}
	m := e.put
	if e.look {
		m = &nats.Msg{Subject: apiSubject("STREAM.MSG.GET", f.stream), Reply: m.Reply, Data: lastGet(m.Subject)}
	}
	e.next = now.Add(answerWait)
	f.mu.Unlock()
	if err := f.publish(m); err != nil {
		f.again(n, storeRetry, err)
	}
}

// overdue asks about the entries that are due, ends those whose time is over,
// and reports whether there are others.
func (f *Finals) overdue(now time.Time) (open bool) {
	var due, over []uint64
	f.mu.Lock()
	for n, e := range f.entries {
		switch {
		case !now.Before(e.until):
			over = append(over, n)
		case !now.Before(e.next):
			due = append(due, n)
		}
	}
	open = len(f.entries) > len(over)
	f.mu.Unlock()
	for _, n := range over {
		f.end(n, Verdict{Err: ErrNoVerdict})
	}
	for _, n := range due {
		f.ask(n, now)
	}
	return open
}

// end gives the verdict.
func (f *Finals) end(n uint64, v Verdict) {
	f.mu.Lock()
	e := f.entries[n]
	delete(f.entries, n)
	f.mu.Unlock()
	if e == nil {
		return
	}
	if errors.Is(v.Err, ErrNoVerdict) {
		v.Err = fmt.Errorf("%w: %w", ErrNoVerdict, cmp.Or(e.last, errSilentServer))
	}
	e.done(v)
}

var errSilentServer = errors.New("no answer")

// giveUp ends all entries.
func (f *Finals) giveUp() {
	f.mu.Lock()
	left := f.entries
	f.entries = map[uint64]*storing{}
	f.mu.Unlock()
	for _, e := range left {
		e.done(Verdict{Err: ErrClosed})
	}
}
