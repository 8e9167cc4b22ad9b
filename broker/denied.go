package broker

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// deniedFor is how long a refused publication counts: what a worker needs it
// does again within that time.
const deniedFor = time.Minute

// denials keeps what the server did not permit this connection. The server says
// so beside the calls: a publication just vanishes and a request times out.
// Its methods are safe for concurrent use.
type denials struct {
	violation *regexp.Regexp
	// needed reports whether the subject of a publication is one that the
	// worker chose. What a client made it try says nothing about the worker.
	needed func(subject string) bool
	// shown reports whether the subject is one on which the worker shows itself,
	// which it can do without.
	shown func(subject string) bool

	mu           sync.Mutex
	published    error // the last refused publication
	at           time.Time
	hidden       time.Time // when it was last refused to show itself
	subscription error     // a refused subscription, which stays so until the next connection
	watches      map[*watch]struct{}
}

// watch is a call that wants to know.
type watch struct {
	about  string
	cancel context.CancelCauseFunc
}

func newDenials(s subjects) *denials {
	return &denials{
		violation: regexp.MustCompile(`(?i)permissions violation for (publish|subscription)(?: with reply)? (?:to|of) "([^"]*)"`),
		needed: func(subject string) bool {
			return strings.HasPrefix(subject, "$") || strings.HasPrefix(subject, string(s)+".")
		},
		shown: func(subject string) bool {
			return subject == s.watch() || strings.HasPrefix(subject, s.live(""))
		},
		watches: map[*watch]struct{}{},
	}
}

// note takes an error of the connection, which may be something else.
func (d *denials) note(err error, now time.Time) {
	m := d.violation.FindStringSubmatch(err.Error())
	if m == nil {
		return
	}
	verb, subject := "publish to", m[2]
	subscription := strings.EqualFold(m[1], "subscription")
	if subscription {
		verb = "subscribe to"
	}
	denied := fmt.Errorf("the server does not permit to %s %q: %w", verb, subject, nats.ErrPermissionViolation)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.shown(subject):
		d.hidden = now
		return
	case subscription:
		d.subscription = denied
	case d.needed(subject):
		d.published, d.at = denied, now
	default:
		return
	}
	for w := range d.watches {
		if subscription || strings.Contains(subject, w.about) {
			w.cancel(denied)
		}
	}
}

// connected forgets what a connection before this one was refused.
func (d *denials) connected() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.published, d.subscription, d.hidden = nil, nil, time.Time{}
}

// unseen reports whether the worker was refused to show itself a short time ago.
func (d *denials) unseen(now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.hidden.IsZero() && now.Sub(d.hidden) < deniedFor
}

// current is what is refused now, or nil.
func (d *denials) current(now time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.subscription != nil {
		return d.subscription
	}
	if d.published != nil && now.Sub(d.at) < deniedFor {
		return d.published
	}
	return nil
}

// permitted makes a call to the server, about subjects that contain a text. One
// that the server refuses fails at once and says why, and not when its time is
// over.
func (d *denials) permitted(ctx context.Context, about string, call func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w := &watch{about: about, cancel: cancel}
	d.mu.Lock()
	d.watches[w] = struct{}{}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.watches, w)
		d.mu.Unlock()
	}()
	err := call(ctx)
	if err == nil || ctx.Err() == nil {
		return err
	}
	if cause := context.Cause(ctx); errors.Is(cause, nats.ErrPermissionViolation) {
		return cause
	}
	return err
}

// Denied says what the worker needs and the server does not permit its user,
// with the subject: a subscription until the next connection, a publication for a
// minute. It is nil when nothing is denied, and matches
// [nats.ErrPermissionViolation] otherwise. Refused answers to subjects that a
// client chose do not count.
func (c *Conn) Denied() error { return c.denials.current(time.Now()) }

// request asks the server, and fails at once when it is not permitted.
func (c *Conn) request(ctx context.Context, m *nats.Msg) (reply *nats.Msg, err error) {
	err = c.denials.permitted(ctx, m.Subject, func(ctx context.Context) error {
		reply, err = c.nc.RequestMsgWithContext(ctx, m)
		return err
	})
	return reply, err
}
