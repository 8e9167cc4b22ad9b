package broker

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"
)

// readBack is a letter about r as it is read again.
func readBack(t *testing.T, s subjects, r *Request) *Letter {
	t.Helper()
	m, err := NewLetter(r).message(&s, "INFER", 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.storedLetter(&record{subject: m.Subject, header: m.Header, data: m.Data})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// sameRequest wants the request of a letter to be the one that was delivered, but
// for when and where it is answered.
func sameRequest(t *testing.T, delivered, got *Request) {
	t.Helper()
	want := *delivered
	want.Deadline, want.Reply = time.Time{}, ""
	some := func(a, b []byte) bool { return len(a)+len(b) > 0 }
	whole := cmp.FilterValues(some, cmp.Comparer(bytes.Equal)) // not byte by byte
	if diff := cmp.Diff(&want, got, whole, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

// TestLetterRequest decodes what was delivered again from its letter.
func TestLetterRequest(t *testing.T) {
	t.Parallel()
	published := time.Unix(1_700_000_000, 5).UTC()
	for name, tt := range map[string]struct {
		prefix, subject string
		header          nats.Header
		payload         []byte
	}{
		"JSON":            {"infer", "infer.req.m.std.me", nil, []byte(`{"input":"x","max_tokens":3,"meta":{"k":"v"}}`)},
		"MessagePack ids": {"infer", "infer.req.m.high.me", nil, pack(t, map[string]any{"input": []int{1, 2}, "seed": 3})},
		"text": {
			"infer", "infer.req.m.low.me",
			nats.Header{"content-type": {TypeText}},
			[]byte(`{"input":"x"}`),
		},
		"headers": {
			"infer", "infer.req.m.std.me",
			nats.Header{
				HeaderID: {"request0001"}, HeaderVersion: {"1+int8"}, HeaderMode: {"final"}, HeaderOnGone: {"finish"}, HeaderTraceParent: {"00-a"},
				HeaderDeadline: {"1"}, HeaderModelVersion: {"mine"}, "Request-X": {"y"}, HeaderTTL: {"5m"},
			},
			[]byte("x"),
		},
		"deadline and reply": {
			"infer", "infer.req.m.std.me",
			nats.Header{HeaderTimeout: {"5"}, HeaderReplyTo: {"_INBOX.x"}},
			[]byte("x"),
		},
		"resume":                  {"infer", "infer.req.m.std.me", nats.Header{HeaderMode: {"resume"}}, nil},
		"prefix of many tokens":   {"a.b", "a.b.req.m.std.me", nil, []byte("x")},
		"prefix like the subject": {"a.req.m", "a.req.m.req.m.std.me", nil, []byte("x")},
		"large":                   {"infer", "infer.req.m.std.me", nil, make([]byte, 1<<17)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &decoder{subjects: subjects(tt.prefix), maxPayload: 4 << 20, created: func() int64 { return 77 }}
			r, bad := d.durable(message{subject: tt.subject, header: tt.header, payload: tt.payload}, 12, published, time.UnixMilli(0))
			if bad != nil {
				t.Fatal(bad)
			}
			got, err := readBack(t, d.subjects, r).Request()
			if err != nil {
				t.Fatal(err)
			}
			sameRequest(t, r, got)
		})
	}
}

// TestNoLetterRequest wants each letter without a request to say what it lacks.
func TestNoLetterRequest(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*Letter)
		want   error
	}{
		"no payload":       {func(l *Letter) { l.Truncated = []string{"tokens", "terminal", "header", "payload"} }, ErrTruncated},
		"no subject":       {func(l *Letter) { l.Subject = "" }, ErrBadRecord},
		"another model":    {func(l *Letter) { l.Model = "other" }, ErrBadRecord},
		"no model":         {func(l *Letter) { l.Model = "" }, ErrBadRecord},
		"no prefix":        {func(l *Letter) { l.Subject = ".req.m.std.me" }, ErrBadRecord},
		"no client":        {func(l *Letter) { l.Subject = "infer.req.m.std." }, ErrBadRecord},
		"no such priority": {func(l *Letter) { l.Subject = "infer.req.m.now.me" }, ErrBadRecord},
		"no id":            {func(l *Letter) { l.ID = "x" }, ErrBadRecord},
		"no sequence":      {func(l *Letter) { l.Sequence = 0 }, ErrBadRecord},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := &Letter{Sequence: 1, Subject: "infer.req.m.std.me", Model: "m", ID: "request0001", Payload: []byte("x")}
			if _, err := l.Request(); err != nil {
				t.Fatal(err)
			}
			tt.change(l)
			if r, err := l.Request(); !errors.Is(err, tt.want) || r != nil {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
	// What is left decides; a refusal comes with the request.
	l := &Letter{Sequence: 1, Subject: "infer.req.m.std.me", Model: "m", ID: "request0001", Payload: []byte("x"), Truncated: []string{"tokens", "header"}}
	if r, err := l.Request(); err != nil || r.Input.Text != "x" {
		t.Errorf("%+v, %v", r, err)
	}
	l.Payload = []byte("{")
	var refused *Error
	if r, err := l.Request(); !errors.As(err, &refused) || refused.Code != CodeBadRequest || r.ID != l.ID {
		t.Errorf("%+v, %v", r, err)
	}
}

// FuzzLetterRequest reads requests out of letters: of those that are a request's,
// the request; of any other, one of the errors that are promised.
func FuzzLetterRequest(f *testing.F) {
	f.Add("infer.req.m.std.me", "m", "abcdefgh", TypeJSON, "final", "1+int8", []byte(`{"input":"x"}`))
	f.Add("a.b.req.m.high.me", "m", "abcdefgh", "", "", "", pack(f, map[string]any{"input": []int{1}}))
	f.Add("infer.req..", "m", "", "x", "resume", "\n", []byte{0x80})
	f.Add(".req.m.std.me", "", "x", "", "", "", []byte{})
	for _, b := range bombs() {
		f.Add("infer.req.m.std.me", "m", "abcdefgh", "", "", "", b[:min(len(b), 64)])
	}
	f.Fuzz(func(t *testing.T, subject, model, id, contentType, mode, version string, payload []byte) {
		h, size := fuzzHeader(HeaderContentType, contentType, HeaderMode, mode, HeaderVersion, version)
		l := &Letter{Sequence: 1, Subject: subject, Model: model, ID: id, Header: h, Payload: payload}
		var r *Request
		var err error
		boundedBy(t, payloadFactor, len(subject)+len(model)+len(id)+size+len(payload), func() { r, err = l.Request() })
		var refused *Error
		switch {
		case r == nil && errors.Is(err, ErrBadRecord):
			return
		case r == nil || err != nil && !errors.As(err, &refused):
			t.Fatalf("%+v, %v", r, err)
		case r.Model != model || r.ID != id || !ValidClient(r.Client) || r.Reply != "" || !r.Deadline.IsZero():
			t.Fatalf("%+v", r)
		case err != nil:
			return
		}
		d := &decoder{subjects: subjects(subject[:len(subject)-len(".req.."+model+"."+string(r.Priority)+r.Client)]), maxPayload: len(payload)}
		h[HeaderID] = []string{id}
		delivered, bad := d.durable(message{subject: subject, header: h, payload: payload}, 1, l.Published, l.Published)
		if bad != nil {
			t.Fatalf("a delivery is refused: %v", bad)
		}
		sameRequest(t, delivered, r)
	})
}
