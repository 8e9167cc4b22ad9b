package broker

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// TestModeErrorOffersWhatIsServed wants the message not to name a mode that is
// refused.
func TestModeErrorOffersWhatIsServed(t *testing.T) {
	t.Parallel()
	for durable, want := range map[bool]string{false: "not stream or final", true: "not stream, final or resume"} {
		e := readHeaders(&Request{Durable: durable}, nats.Header{HeaderMode: {"chunky"}}, time.Now())
		if e == nil || !strings.Contains(e.Message, want) {
			t.Errorf("durable %v: %v", durable, e)
		}
	}
}

func TestModeResume(t *testing.T) {
	t.Parallel()
	d := newTestDecoder()
	now := time.Now()
	for _, tc := range []struct {
		name, subject, replyTo, want string
	}{
		{"kept", "infer.req.m.std.me", "", "infer.outr.me.abcdefgh"},
		{"with another reply subject", "infer.req.m.std.me", "_INBOX.x", "infer.outr.me.abcdefgh"},
		{"refused", "infer.req.m.std.m.e", "", ""},
	} {
		h := nats.Header{HeaderID: {"abcdefgh"}, HeaderMode: {"resume"}}
		if tc.replyTo != "" {
			h[HeaderReplyTo] = []string{tc.replyTo}
		}
		r, err := d.durable(message{subject: tc.subject, header: h, payload: []byte("x")}, 1, now, now)
		if r.Reply != tc.want || (err == nil) != (tc.want != "") || r.Mode != ModeResume {
			t.Errorf("%s: %q, mode %q, %v", tc.name, r.Reply, r.Mode, err)
		}
	}
}

// TestClocksDiffer has a client whose clock is an hour off: the budget as a
// duration holds.
func TestClocksDiffer(t *testing.T) {
	t.Parallel()
	published := time.UnixMilli(1_700_000_000_000)
	ms := func(t time.Time) string { return strconv.FormatInt(t.UnixMilli(), 10) }
	for _, tc := range []struct {
		name              string
		deadline, timeout string
		waited            time.Duration
		left              time.Duration // 0: expired
		code              Code
	}{
		{"right clock, no timeout", ms(published.Add(time.Second)), "", 400 * time.Millisecond, 600 * time.Millisecond, ""},
		{"slow clock", ms(published.Add(-time.Hour)), "1000", 400 * time.Millisecond, 600 * time.Millisecond, ""},
		{"fast clock", ms(published.Add(time.Hour)), "1000", 400 * time.Millisecond, 600 * time.Millisecond, ""},
		{"fast clock, too late", ms(published.Add(time.Hour)), "1000", time.Second, 0, CodeDeadlineExceeded},
		{"slow clock, no timeout", ms(published.Add(-time.Hour)), "", 0, 0, CodeDeadlineExceeded},
		{"longest", "", "9007199254740992", 0, 365 * 24 * time.Hour, ""},
		{"malformed", "", "soon", 0, 0, CodeBadRequest},
		{"negative", "", "-1", 0, 0, CodeBadRequest},
		{"too long", "", "9007199254740993", 0, 0, CodeBadRequest},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h := nats.Header{}
			if tc.deadline != "" {
				h[HeaderDeadline] = []string{tc.deadline}
			}
			if tc.timeout != "" {
				h[HeaderTimeout] = []string{tc.timeout}
			}
			now := published.Add(tc.waited)
			r := &Request{Published: published}
			err := readHeaders(r, h, now)
			if tc.code != "" {
				if err == nil || err.Code != tc.code {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil || r.Deadline.Sub(now) != tc.left {
				t.Errorf("%v left, %v", r.Deadline.Sub(now), err)
			}
		})
	}
}

// FuzzQuestions has hostile payloads on the endpoints: what is read is in its
// bounds.
func FuzzQuestions(f *testing.F) {
	for _, s := range []string{`{"id":"abcdefgh","seq":7,"index":3}`, `{"id":"abcdefgh","model":"echo"}`, "\x81\xa2id\xa8abcdefgh", `{"id":1}`, "", "{"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		if id, _, err := readCancel(payload); err == nil && !ValidID(id) {
			t.Fatalf("id %q", id)
		}
		if m, err := readResume(payload); err == nil && (!ValidID(m.ID) || m.Index < 0 || m.Model != "" && !ValidModel(m.Model)) {
			t.Fatalf("%+v", m)
		}
		if c, err := readControl(payload); err == nil && c.Op != ControlStatus && c.Op != ControlDrain {
			t.Fatalf("operation %q", c.Op)
		}
		boundedBy(t, 4*payloadFactor, len(payload), func() {
			_, err := readQuestion(payload)
			_, other := readControl(payload)
			checkShort(t, err)
			checkShort(t, other)
		})
	})
}

// longestWord is how long what is said of a hostile input may be.
const longestWord = 512

// checkShort wants an error to quote no more than the beginning of what it is
// about.
func checkShort(t *testing.T, err error) {
	t.Helper()
	if err != nil && len(err.Error()) > longestWord {
		t.Fatalf("an error of %d bytes: %.100s", len(err.Error()), err)
	}
}

// FuzzRequestHeaders has hostile headers on both paths: a refusal is short, and
// what is accepted is in its bounds.
func FuzzRequestHeaders(f *testing.F) {
	f.Add("5000", "5", "cancel", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", TypeText, "final", "1")
	f.Add("-1", "never", "", "\xff", "application/xml", "Resume", strings.Repeat("9", 600))
	f.Fuzz(func(t *testing.T, timeout, ttl, gone, trace, contentType, mode, version string) {
		h, size := fuzzHeader(HeaderTimeout, timeout, HeaderTTL, ttl, HeaderOnGone, gone, HeaderTraceParent, trace,
			HeaderContentType, contentType, HeaderMode, mode, HeaderVersion, version)
		now := time.UnixMilli(1000)
		d := newTestDecoder()
		boundedBy(t, payloadFactor, size, func() {
			_, durable := d.durable(message{subject: "infer.req.m.std.me", header: h, payload: []byte("x")}, 1, now, now)
			r, core := d.core("m", message{subject: "infer.rt.m", reply: "_INBOX.a", header: h, payload: []byte("x")}, now)
			for _, bad := range []*Error{durable, core} {
				if bad != nil {
					checkShort(t, bad)
				}
			}
			if core == nil && !r.Deadline.IsZero() && r.Deadline.Before(now.Add(-time.Hour)) {
				t.Fatalf("deadline %v", r.Deadline)
			}
		})
	})
}
