package ask

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/loadtest/internal/workload"
)

// Config describes a [Client].
type Config struct {
	// Prefix of all subjects; empty: infer.
	Prefix string
	// Clients are the names that requests may have.
	Clients []string
	// Patience is how long a request may take, counted from when it was sent.
	Patience time.Duration
}

// Counts are what a client saw beside outcomes.
type Counts struct {
	// Duplicates are terminal frames of requests that had ended.
	Duplicates int
	// Malformed are payloads that are neither frames nor receipts.
	Malformed int
	// Dropped are messages that the library dropped, since the process was slow.
	Dropped int
}

// The digits of a request's number in its id.
const numberDigits = 10

// What may wait for the client; see Counts.Dropped.
const (
	pendingMessages = 1 << 20
	pendingBytes    = 512 << 20
)

// Client sends requests. Ask belongs to one goroutine; the rest is safe for
// concurrent use.
type Client struct {
	nc     *nats.Conn
	cfg    Config
	tag    string // the beginning of ids
	subs   []*nats.Subscription
	encode *encoder
	header nats.Header
	id     []byte

	mu      sync.Mutex
	flights map[uint64]*flight
	spare   []*flight
	next    uint64
	counts  Counts
	scratch frame
}

// New returns a client on nc, which it does not own.
func New(nc *nats.Conn, cfg Config) (*Client, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = "infer"
	}
	if cfg.Patience <= 0 {
		return nil, fmt.Errorf("patience %v: not positive", cfg.Patience)
	}
	tag := nuid.Next()
	c := &Client{nc: nc, cfg: cfg, tag: "load" + tag[len(tag)-8:], encode: newEncoder(), flights: map[uint64]*flight{}}
	for _, name := range cfg.Clients {
		if !broker.ValidClient(name) {
			return nil, errors.Join(fmt.Errorf("client %q: not [A-Za-z0-9_-]{1,64}", name), c.Close())
		}
		sub, err := nc.Subscribe(cfg.Prefix+".out."+name+".*", c.receive)
		if err == nil {
			c.subs = append(c.subs, sub)
			err = sub.SetPendingLimits(pendingMessages, pendingBytes)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("subscribe to replies: %w", err), c.Close())
		}
	}
	if err := nc.Flush(); err != nil {
		return nil, errors.Join(fmt.Errorf("subscribe to replies: %w", err), c.Close())
	}
	return c, nil
}

// Close ends the subscriptions. Nothing is told of requests under way.
func (c *Client) Close() error {
	var errs []error
	for _, sub := range c.subs {
		if err := sub.Unsubscribe(); err != nil && !errors.Is(err, nats.ErrConnectionClosed) {
			errs = append(errs, fmt.Errorf("end subscription: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Ask sends a request that was due at a time. done is told how it ends, by
// another goroutine that holds a lock: it must be short, must not call the client,
// and must not keep the outcome. After an error nothing was sent, and done is
// not called.
func (c *Client) Ask(r *workload.Request, due time.Time, done func(*Outcome)) error {
	payload, err := c.encode.encode(r)
	if err != nil {
		return err
	}
	now := time.Now()
	number := c.add(r, due, now, done)
	c.id = appendID(c.id[:0], c.tag, number)
	id := string(c.id)
	m := nats.Msg{Data: payload, Header: c.headers(r, id, now), Reply: c.cfg.Prefix + ".out." + r.Client + "." + id}
	if r.Realtime {
		m.Subject = c.cfg.Prefix + ".rt." + r.Model + "." + r.Client
	} else {
		m.Subject = c.cfg.Prefix + ".req." + r.Model + "." + string(r.Priority) + "." + r.Client
	}
	if err := c.nc.PublishMsg(&m); err != nil {
		c.mu.Lock()
		delete(c.flights, number)
		c.mu.Unlock()
		return fmt.Errorf("publish request: %w", err)
	}
	if r.CancelAfter > 0 {
		time.AfterFunc(time.Until(due.Add(r.CancelAfter)), func() { c.cancel(number, id) })
	}
	return nil
}

func (c *Client) add(r *workload.Request, due, now time.Time, done func(*Outcome)) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	var f *flight
	if n := len(c.spare); n > 0 {
		f = c.spare[n-1]
		c.spare = c.spare[:n-1]
	} else {
		f = &flight{}
	}
	*f = flight{Outcome: Outcome{Due: due, Sent: now, Gaps: f.Gaps[:0]}, request: *r, done: done}
	f.Request = &f.request
	number := c.next
	c.next++
	c.flights[number] = f
	return number
}

// headers fills the header anew; the library has written it when PublishMsg
// returns.
func (c *Client) headers(r *workload.Request, id string, now time.Time) nats.Header {
	if c.header == nil {
		c.header = nats.Header{broker.HeaderID: {""}, broker.HeaderContentType: {broker.TypeMsgPack}}
	}
	h := c.header
	h[broker.HeaderID][0] = id
	delete(h, broker.HeaderMode)
	delete(h, broker.HeaderDeadline)
	delete(h, broker.HeaderTimeout)
	if r.Final {
		h[broker.HeaderMode] = []string{string(broker.ModeFinal)}
	}
	if r.Deadline > 0 {
		deadline := now.Add(r.Deadline)
		h[broker.HeaderDeadline] = []string{strconv.FormatInt(deadline.UnixMilli(), 10)}
		h[broker.HeaderTimeout] = []string{strconv.FormatInt(max(r.Deadline.Milliseconds(), 1), 10)}
	}
	return h
}

func appendID(dst []byte, tag string, number uint64) []byte {
	dst = append(dst, tag...)
	at := len(dst)
	for range numberDigits {
		dst = append(dst, '0')
	}
	for i := len(dst) - 1; i >= at; i-- {
		dst[i] += byte(number % 10)
		number /= 10
	}
	return dst
}

// numberOf returns the number of the request whose frames come on subject.
func (c *Client) numberOf(subject string) (number uint64, ok bool) {
	id := subject[strings.LastIndexByte(subject, '.')+1:]
	digits, ok := strings.CutPrefix(id, c.tag)
	if !ok || len(digits) != numberDigits {
		return 0, false
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return 0, false
		}
		number = number*10 + uint64(digits[i]-'0')
	}
	return number, true
}

// receive takes a message: a frame, the receipt of a request, or the server's
// word that nobody takes it.
func (c *Client) receive(m *nats.Msg) {
	now := time.Now()
	number, ok := c.numberOf(m.Subject)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.flights[number]
	var ended bool
	x := &c.scratch
	switch {
	case len(m.Data) == 0:
		if ended = f != nil && m.Header.Get("Status") == "503"; ended {
			f.Code = CodeNobody
		}
	case m.Data[0] == '{':
		ended = c.receipt(f, m.Data)
	default:
		if err := readFrame(m.Data, x); err != nil {
			c.counts.Malformed++
			return
		}
		if f == nil {
			if number < c.next && (x.kind == "final" || x.kind == "error") {
				c.counts.Duplicates++
			}
			return
		}
		ended = f.take(x, now)
	}
	if ended {
		c.end(number, f, now)
	}
}

// end tells how a request ended.
func (c *Client) end(number uint64, f *flight, now time.Time) {
	f.End = now
	delete(c.flights, number)
	f.done(&f.Outcome)
	f.done = nil
	c.spare = append(c.spare, f)
}

// receipt reads the server's answer to the publication of a durable request and
// reports whether it ends the request. f is nil when the request has ended.
func (c *Client) receipt(f *flight, payload []byte) bool {
	if f == nil || !bytes.Contains(payload, []byte(`"error"`)) && f.request.CancelAfter == 0 {
		return false
	}
	var r struct {
		Seq   uint64 `json:"seq"`
		Error *struct {
			ErrCode     int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if json.Unmarshal(payload, &r) != nil {
		c.counts.Malformed++
		return false
	}
	if r.Error == nil {
		f.stored = r.Seq
		return false
	}
	const full, cannotKeepUp = 10077, 10167 // the server's error numbers
	switch {
	case r.Error.ErrCode == full && strings.Contains(r.Error.Description, "per subject"):
		f.Code = string(broker.CodeQuotaExceeded)
	case r.Error.ErrCode == full, r.Error.ErrCode == cannotKeepUp:
		f.Code = string(broker.CodeBusy)
	default:
		f.Code = string(broker.CodeInternal)
	}
	return true
}

// cancel asks the workers to end a request that is under way.
func (c *Client) cancel(number uint64, id string) {
	c.mu.Lock()
	f := c.flights[number]
	if f == nil {
		c.mu.Unlock()
		return
	}
	client, stored := f.request.Client, f.stored
	c.mu.Unlock()
	text := `{"id":"` + id + `"`
	if stored > 0 {
		text += `,"seq":` + strconv.FormatUint(stored, 10)
	}
	_ = c.nc.Publish(c.cfg.Prefix+".cancel."+client, []byte(text+"}")) // not sent: it ends by itself
}

// Expire ends the requests whose patience has run out at now, all of them if now
// is zero.
func (c *Client) Expire(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := now.IsZero()
	for number, f := range c.flights {
		if all || now.Sub(f.Sent) >= c.cfg.Patience {
			f.Code = CodeTimeout
			c.end(number, f, f.Sent.Add(c.cfg.Patience))
		}
	}
}

// InFlight is the number of requests under way.
func (c *Client) InFlight() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.flights)
}

// Counts returns what the client saw.
func (c *Client) Counts() Counts {
	c.mu.Lock()
	counts := c.counts
	c.mu.Unlock()
	for _, sub := range c.subs {
		if n, err := sub.Dropped(); err == nil {
			counts.Dropped += n
		}
	}
	return counts
}
