package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go"
)

// fakeServer answers the questions of a [Finals] by a script, one line a
// question; "" is silence.
type fakeServer struct {
	t      *testing.T
	f      *Finals
	mu     sync.Mutex
	script []string
	asked  []string // "put" or "look", and when
	start  time.Time
	ensure int
}

func newFakeServer(t *testing.T, script ...string) *fakeServer {
	t.Helper()
	s := &fakeServer{t: t, script: script, start: time.Now()}
	s.f = newFinals("infer", "INFER_FINAL", "inbox", s.take, func(context.Context) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ensure++
		return nil
	})
	s.f.running.Go(s.f.run)
	return s
}

func (s *fakeServer) take(m *nats.Msg) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	verb := "put"
	if strings.Contains(m.Subject, "MSG.GET") {
		verb = "look"
	}
	s.asked = append(s.asked, fmt.Sprintf("%s %v", verb, time.Since(s.start).Round(time.Millisecond)))
	if len(s.script) == 0 {
		return nil
	}
	line := s.script[0]
	s.script = s.script[1:]
	answer := &nats.Msg{Subject: m.Reply}
	switch line {
	case "":
		return nil
	case "away":
		return nats.ErrReconnectBufExceeded
	case "large":
		return nats.ErrMaxPayload
	case "nobody":
		answer.Header = nats.Header{"Status": {"503"}}
	case "ack":
		answer.Data = []byte(`{"stream":"INFER_FINAL","seq":1}`)
	case "mine", "other":
		answer.Data = s.answer(line)
	case "garbage":
		answer.Data = []byte("x")
	default: // code, number
		var code, number int
		if _, err := fmt.Sscan(line, &code, &number); err != nil {
			s.t.Error(err)
		}
		kind := ""
		if verb == "look" {
			kind = `"type":"io.nats.jetstream.api.v1.stream_msg_get_response",`
		}
		answer.Data = fmt.Appendf(nil, `{%s"error":{"code":%d,"err_code":%d,"description":"d"}}`, kind, code, number)
	}
	s.f.answers <- answer
	return nil
}

// answer is what is stored, of the lease or of another.
func (s *fakeServer) answer(whose string) []byte {
	stored := *testFinal()
	if whose == "other" {
		stored.Worker = "other"
	}
	m, err := stored.message("infer.final.me.abcdefgh")
	if err != nil {
		s.t.Error(err)
	}
	var header bytes.Buffer
	header.WriteString("NATS/1.0\r\n")
	for k, v := range m.Header {
		fmt.Fprintf(&header, "%s: %s\r\n", k, v[0])
	}
	header.WriteString("\r\n")
	b, err := json.Marshal(map[string]any{
		"type":    "io.nats.jetstream.api.v1.stream_msg_get_response",
		"message": map[string]any{"subject": m.Subject, "seq": 3, "hdrs": header.Bytes(), "data": m.Data, "time": time.Now()},
	})
	if err != nil {
		s.t.Error(err)
	}
	return b
}

func testFinal() *StoredFinal {
	return &StoredFinal{Client: "me", ID: "abcdefgh", Worker: "w", Epoch: 1, Attempt: 2, Request: 3, Frame: []byte("f")}
}

// TestFinalsAsk plays the server's answers to one final, in virtual time.
func TestFinalsAsk(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		script []string
		asked  string
		mine   bool
		other  bool
		err    error // of the verdict
		ensure int
	}{
		"stored":               {script: []string{"ack"}, asked: "put 0s", mine: true},
		"lost ack":             {script: []string{"", "400 10071", "mine"}, asked: "put 0s, put 2s, look 2s", mine: true},
		"lost answer":          {script: []string{"400 10071", "", "other"}, asked: "put 0s, look 0s, look 2s", other: true},
		"other's":              {script: []string{"400 10071", "other"}, asked: "put 0s, look 0s", other: true},
		"in process":           {script: []string{"400 10164", "400 10164", "ack"}, asked: "put 0s, put 50ms, put 100ms", mine: true},
		"no stream":            {script: []string{"nobody", "404 10059", "ack"}, asked: "put 0s, put 250ms, put 500ms", mine: true, ensure: 2},
		"no leader":            {script: []string{"503 10008", "ack"}, asked: "put 0s, put 250ms", mine: true},
		"away":                 {script: []string{"away", "away", "ack"}, asked: "put 0s, put 250ms, put 500ms", mine: true},
		"gone since":           {script: []string{"400 10071", "404 10037", "ack"}, asked: "put 0s, look 0s, put 50ms", mine: true},
		"no leader to look at": {script: []string{"400 10071", "503 10008", "400 10071", "other"}, asked: "put 0s, look 0s, put 250ms, look 250ms", other: true},
		"garbage":              {script: []string{"garbage", "ack"}, asked: "put 0s, put 250ms", mine: true},
		"refused":              {script: []string{"400 10054"}, asked: "put 0s", err: &apiError{}},
		"silence":              {asked: "put 0s, put 2s, put 4s", err: ErrNoVerdict},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newFakeServer(t, tt.script...)
				got := make(chan Verdict, 1)
				until := time.Now().Add(5 * time.Second)
				if err := s.f.Store(testFinal(), until, func(v Verdict) { got <- v }); err != nil {
					t.Fatal(err)
				}
				v := <-got
				if v.Mine != tt.mine || (v.Other != nil) != tt.other || (v.Err != nil) != (tt.err != nil) {
					t.Errorf("verdict %+v", v)
				}
				var refused *apiError
				if tt.err != nil && !errors.Is(v.Err, tt.err) && !errors.As(v.Err, &refused) {
					t.Errorf("verdict %v, want %v", v.Err, tt.err)
				}
				synctest.Wait()
				if asked := strings.Join(s.asked, ", "); asked != tt.asked || s.ensure != tt.ensure {
					t.Errorf("asked %s and ensured %d times, want %s and %d", asked, s.ensure, tt.asked, tt.ensure)
				}
				if err := s.f.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestFinalsBounds wants a bounded number of open finals, an early refusal of
// what does not fit, and one verdict for each at the end.
func TestFinalsBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(t, "large")
		verdicts := 0
		done := func(v Verdict) {
			if verdicts++; !errors.Is(v.Err, ErrClosed) {
				t.Errorf("verdict %+v", v)
			}
		}
		until := time.Now().Add(time.Hour)
		if err := s.f.Store(testFinal(), until, done); !errors.Is(err, ErrFrameTooLarge) {
			t.Errorf("too large: %v", err)
		}
		for i := range maxStoring {
			if err := s.f.Store(testFinal(), until, done); err != nil {
				t.Fatalf("%d: %v", i, err)
			}
		}
		if err := s.f.Store(testFinal(), until, done); !errors.Is(err, ErrStoreFull) {
			t.Errorf("full: %v", err)
		}
		// A reconnection asks about all of them at once.
		time.Sleep(time.Second)
		before := len(s.asked)
		s.f.hurry()
		time.Sleep(storeBeat)
		synctest.Wait()
		if n := len(s.asked) - before; n != maxStoring {
			t.Errorf("%d asked again", n)
		}
		if err := s.f.Close(); err != nil || verdicts != maxStoring {
			t.Errorf("%d verdicts, %v", verdicts, err)
		}
		if err := s.f.Store(testFinal(), until, done); !errors.Is(err, ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}

// TestRequestHash pins the hash: workers of different versions must agree.
func TestRequestHash(t *testing.T) {
	t.Parallel()
	const want = 0x5c73b506a5f369f7
	if h := requestHash("infer.req.m.std.me", nil, []byte("x")); h != want {
		t.Errorf("%#x", h)
	}
	now := time.Now()
	m := message{subject: "infer.req.m.std.me", header: nats.Header{"A": {"b"}}, payload: []byte("x")}
	r, bad := newTestDecoder().durable(m, 12, now, now)
	if bad != nil || r.Hash != want || r.Sequence != 12 || r.Raw.Subject != m.subject || string(r.Raw.Payload) != "x" || r.Raw.Header.Get("A") != "b" {
		t.Errorf("%+v, %v", r, bad)
	}
	if r, _ := newTestDecoder().core("m", m, now); r.Hash != 0 || r.Sequence != 0 || r.Raw.Payload != nil {
		t.Errorf("core: %+v", r)
	}
	// The zero byte separates.
	if requestHash("a", nil, []byte("bc")) == requestHash("ab", nil, []byte("c")) {
		t.Error("subject and payload run together")
	}
}

// TestRequestHashOfHeaders tells requests apart by what their answer depends on,
// and by nothing else.
func TestRequestHashOfHeaders(t *testing.T) {
	t.Parallel()
	payload := []byte(`{"input":"x"}`)
	of := func(pairs ...string) uint64 {
		h, _ := fuzzHeader(pairs...)
		return requestHash("infer.req.m.std.me", h, payload)
	}
	plain := of()
	for name, h := range map[string]uint64{
		"the type that it has": of(HeaderContentType, TypeJSON), "a mode": of(HeaderMode, "final"),
		"a deadline": of(HeaderDeadline, "1"), "another case": of("content-type", "application/json; charset=utf-8"),
	} {
		if h != plain {
			t.Errorf("%s makes another request", name)
		}
	}
	seen := map[uint64]string{plain: "plain"}
	for name, h := range map[string]uint64{
		"text": of(HeaderContentType, TypeText), "version 1": of(HeaderVersion, "1"), "version 2": of(HeaderVersion, "2"),
		"text of version 1": of(HeaderContentType, TypeText, HeaderVersion, "1"), "msgpack": of(HeaderContentType, TypeMsgPack),
	} {
		if other, ok := seen[h]; ok {
			t.Errorf("%s is %s", name, other)
		}
		seen[h] = name
	}
}

func fuzzHeader(values ...string) (h nats.Header, size int) {
	h = nats.Header{}
	for i := 0; i+1 < len(values); i += 2 {
		h[values[i]] = []string{values[i+1]}
		size += len(values[i]) + len(values[i+1])
	}
	return h, size
}

func FuzzStoredFinal(f *testing.F) {
	f.Add("infer.final.me.abcdefgh", "w/1/2", "0000000000000003", TypeJSON, []byte("{}"))
	f.Add("infer.final.me.abcdefgh", "a/b/1/2", "00000000000000ff", TypeMsgPack, []byte{0x80})
	f.Add("infer.final.me", "/", "x", "", []byte{})
	f.Fuzz(func(t *testing.T, subject, lease, hash, contentType string, data []byte) {
		h, size := fuzzHeader(HeaderLease, lease, HeaderRequest, hash, HeaderContentType, contentType)
		var got *StoredFinal
		var err error
		bounded(t, len(subject)+size+len(data), func() {
			got, err = subjects("infer").storedFinal(&record{subject: subject, header: h, data: data})
		})
		if err != nil {
			if checkShort(t, err); !errors.Is(err, ErrBadRecord) {
				t.Fatal(err)
			}
			return
		}
		m, err := got.message(subjects("infer").final(got.Client, got.ID))
		if err != nil {
			t.Fatalf("%+v was read: %v", got, err)
		}
		again, err := subjects("infer").storedFinal(&record{subject: m.Subject, header: m.Header, data: m.Data})
		if diff := cmp.Diff(got, again); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}

func FuzzState(f *testing.F) {
	f.Add("infer.state.me.abcdefgh", "3", "0000000000000003", "sha256:0", []byte("checkpoint"))
	f.Add("infer.state.me.abcdefgh", "", "0000000000000003", "", []byte{})
	f.Add("infer.state.me.abcdefgh", "0", "0000000000000003", "sha256:0", []byte{})
	f.Add("infer.state..", "-1", "", "\n", []byte{})
	f.Fuzz(func(t *testing.T, subject, excused, hash, digest string, data []byte) {
		h, size := fuzzHeader(HeaderExcused, excused, HeaderRequest, hash, HeaderDigest, digest)
		var got *State
		var err error
		bounded(t, len(subject)+size+len(data), func() {
			got, err = subjects("infer").storedState(&record{subject: subject, header: h, data: data})
		})
		if err != nil {
			if checkShort(t, err); !errors.Is(err, ErrBadRecord) {
				t.Fatal(err)
			}
			return
		}
		m, err := got.message(subjects("infer").state(got.Client, got.ID), 0)
		if err != nil {
			t.Fatalf("%+v was read: %v", got, err)
		}
		again, err := subjects("infer").storedState(&record{subject: m.Subject, header: m.Header, data: m.Data})
		if diff := cmp.Diff(got, again); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}

func FuzzLetter(f *testing.F) {
	seed := Letter{Payload: []byte("p"), Terminal: []byte("{}"), Tokens: []int32{1, -1}}
	f.Add("infer.dlq.m", "12", "2026-01-02T03:04:05.6Z", "Nats-Msg-Id", "v", seed.body())
	f.Add("infer.dlq.m", "1", "2026-01-02T03:04:05Z", "Request-Nats-TTL", "v", []byte{0x81, 0xa6, 't', 'o', 'k', 'e', 'n', 's', 0xc4, 3, 0, 0, 0})
	f.Add("infer.dlq.", "", "", "infer-error", "", []byte{0x90})
	for _, b := range bombs() {
		f.Add("infer.dlq.m", "1", "2026-01-02T03:04:05Z", "X", "y", b[:min(len(b), 64)])
	}
	f.Fuzz(func(t *testing.T, subject, sequence, published, name, value string, body []byte) {
		h, size := fuzzHeader(HeaderSequence, sequence, HeaderPublished, published, HeaderSubject, "infer.req.m.std.me", name, value)
		var got *Letter
		var err error
		bounded(t, len(subject)+size+len(body), func() {
			got, err = subjects("infer").storedLetter(&record{subject: subject, header: h, data: body})
		})
		if err != nil {
			if checkShort(t, err); !errors.Is(err, ErrBadRecord) {
				t.Fatal(err)
			}
			return
		}
		s := subjects("infer")
		m, err := got.message(&s, "INFER", 64<<20)
		if err != nil { // a name that a header cannot carry, or no sequence
			return
		}
		again, err := s.storedLetter(&record{subject: m.Subject, header: m.Header, data: m.Data})
		if diff := cmp.Diff(got, again, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}

func FuzzAdvisory(f *testing.F) {
	f.Add([]byte(`{"stream":"INFER","consumer":"m_std","stream_seq":1,"deliveries":2,"timestamp":"2026-01-02T03:04:05Z"}`))
	f.Add([]byte(`{"stream":"INFER","consumer":"_","stream_seq":-1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := StreamConfig{Name: "INFER"}
		var a Advisory
		var err error
		bounded(t, len(b), func() { a, err = s.advisory(b) })
		if err == nil && (!ValidModel(a.Model) || !a.Priority.valid() || a.Sequence == 0) {
			t.Fatalf("accepted %+v", a)
		}
		if checkShort(t, err); err != nil && !errors.Is(err, ErrBadRecord) {
			t.Fatal(err)
		}
	})
}
