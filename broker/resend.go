package broker

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// How terminal frames are sent again that nobody heard, or that are in doubt.
const (
	resendFirst  = 250 * time.Millisecond // doubles
	resendFor    = 15 * time.Second
	resendFrames = 1024
	resendBytes  = 16 << 20
	// doubtFor is how long a frame may have been lost unnoticed: a connection that
	// is dead counts as lost when pings were not answered, after two to three of
	// their intervals. The server says sooner that nobody listens.
	doubtFor = 3*pingInterval + 5*time.Second
)

// resender keeps terminal frames until it is likely that somebody heard them,
// and sends those again that nobody did: after a restart of the server a worker
// may be back before its clients are. The server only tells of frames that were
// not heard, so a frame waits some time for that verdict. When the connection is
// lost meanwhile the frame may be lost with it, also when the server had taken
// it and did not live to pass it on; then it is sent again over the next one,
// once, and its reader ignores what it has. The frames that wait and those that
// will be sent again are bounded each, in number and in bytes. It is safe for
// concurrent use.
type resender struct {
	inbox   string // the verdict on frame n arrives at inbox.n
	publish func(subject, reply string, payload []byte) error

	mu      sync.Mutex
	closed  bool
	lost    time.Time // when the connection was; zero: there is one
	last    uint64
	frames  map[uint64]*lastFrame
	pending frameList // no verdict yet, oldest first
	unheard frameList
}

// lastFrame is a terminal frame that was sent.
type lastFrame struct {
	number      uint64
	subject     string
	payload     []byte
	first, sent time.Time
	wait        time.Duration // before it is sent the next time
	timer       *time.Timer   // nil while it is pending
	place       *portion[*lastFrame]
}

// reader is for whom a frame is: everything of the subject but its last token,
// which is a request's.
func (f *lastFrame) reader() string { return f.subject[:max(strings.LastIndexByte(f.subject, '.'), 0)] }

// frameList is a bounded list of frames, oldest first, shared by their readers.
type frameList struct {
	frames shared[*lastFrame]
	bytes  int
}

// frameWeight is what a frame weighs beside its bytes, so that a list that is full
// of frames weighs at least as much as one that is full of bytes: with n readers
// nobody who has at most the n-th part of that weight loses a frame.
const frameWeight = resendBytes / resendFrames

func (l *frameList) add(f *lastFrame) {
	f.place = l.frames.add(f.reader(), f, len(f.payload)+frameWeight)
	l.bytes += len(f.payload)
}

func (l *frameList) remove(f *lastFrame) {
	l.frames.remove(f.place)
	l.bytes -= len(f.payload)
}

// shrink drops what is too much, the oldest frame of the reader of most.
func (l *frameList) shrink(drop func(number uint64)) {
	for l.frames.len() > resendFrames || l.bytes > resendBytes {
		drop(l.frames.surplus().value.number)
	}
}

// oldest returns the first frame, nil when there is none.
func (l *frameList) oldest() *lastFrame {
	if p := l.frames.oldest(); p != nil {
		return p.value
	}
	return nil
}

func newResender(inbox string, publish func(subject, reply string, payload []byte) error) *resender {
	return &resender{inbox: inbox, publish: publish, frames: map[uint64]*lastFrame{}}
}

// send publishes a terminal frame and keeps a copy. A frame that could not be
// sent is not kept.
func (r *resender) send(subject string, payload []byte) error {
	now := time.Now()
	r.mu.Lock()
	r.last++
	f := &lastFrame{
		number: r.last, subject: subject, payload: slices.Clone(payload),
		first: now, sent: now, wait: resendFirst,
	}
	if !r.closed {
		r.frames[f.number] = f
		r.pending.add(f)
		r.trim(now)
	}
	r.mu.Unlock()
	err := r.publish(subject, r.reply(f), payload)
	if err != nil {
		r.mu.Lock()
		r.drop(f.number)
		r.mu.Unlock()
	}
	return err
}

func (r *resender) reply(f *lastFrame) string {
	return r.inbox + "." + strconv.FormatUint(f.number, 10)
}

// trim forgets pending frames that are too many, or were heard by now; without a
// connection, when it was lost. It is called with mu held.
func (r *resender) trim(now time.Time) {
	if !r.lost.IsZero() {
		now = r.lost
	}
	for f := r.pending.oldest(); f != nil && now.Sub(f.sent) > doubtFor; f = r.pending.oldest() {
		r.drop(f.number)
	}
	r.pending.shrink(r.drop)
}

// drop is called with mu held.
func (r *resender) drop(number uint64) {
	f := r.frames[number]
	if f == nil {
		return
	}
	delete(r.frames, number)
	if f.timer == nil {
		r.pending.remove(f)
		return
	}
	f.timer.Stop()
	r.unheard.remove(f)
}

// missed takes the server's word that nobody heard a frame.
func (r *resender) missed(number uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.frames[number]
	if f == nil || f.timer != nil {
		return
	}
	if time.Since(f.first)+f.wait > resendFor {
		r.drop(number)
		return
	}
	r.pending.remove(f)
	r.unheard.add(f)
	f.timer = time.AfterFunc(f.wait, func() { r.again(number) })
	f.wait *= 2
	r.unheard.shrink(r.drop)
}

// again sends a frame once more. While the connection is away it waits for the
// next one.
func (r *resender) again(number uint64) {
	r.mu.Lock()
	f := r.frames[number]
	if f == nil {
		r.mu.Unlock()
		return
	}
	r.unheard.remove(f)
	r.pending.add(f)
	f.timer, f.sent = nil, time.Now()
	r.mu.Unlock()
	_ = r.publish(f.subject, r.reply(f), f.payload) // it is pending: reconnected sends it
}

// disconnected notes that the connection is lost.
func (r *resender) disconnected() {
	r.mu.Lock()
	r.lost = time.Now()
	r.mu.Unlock()
}

// reconnected sends the frames again that may have been lost with the connection
// before, in the order in which they were sent. When this one is lost too the rest
// waits for the next.
func (r *resender) reconnected() {
	for _, f := range r.doubtful(time.Now()) {
		if r.publish(f.subject, r.reply(f), f.payload) != nil {
			return
		}
	}
}

// doubtful takes all frames in doubt as sent now, and returns them. Their time to
// be heard begins anew: readers reconnect too.
func (r *resender) doubtful(now time.Time) []*lastFrame {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trim(now)
	r.lost = time.Time{}
	var out []*lastFrame
	for range r.pending.frames.len() {
		f := r.pending.oldest()
		r.pending.remove(f)
		f.sent, f.first, f.wait = now, now, resendFirst
		out = append(out, f)
		r.pending.add(f)
	}
	return out
}

// close forgets everything.
func (r *resender) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for number := range r.frames {
		r.drop(number)
	}
}
