package broker

import (
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
)

// FuzzStreamReceive has a client's request receive anything on its subjects:
// receipts, frames, answers to its questions. Nothing of it is lost, and the
// reader has an end when the stream has.
func FuzzStreamReceive(f *testing.F) {
	for _, s := range []string{
		`{"stream":"INFER","seq":1}`, `{"stream":"INFER","seq":1,"duplicate":true}`, `{"error":{"code":503,"err_code":10077,"description":"x"}}`,
		`{"type":"resume","id":"abcdefgh","state":"unknown"}`, `{"type":"resume","state":7}`,
		`{"type":"` + streamNamesType + `","total":0}`, `{"type":"` + streamNamesType + `","error":{}}`, "{", "\x80", "x",
	} {
		f.Add(false, []byte(s))
		f.Add(true, []byte(s))
	}
	for _, fr := range frames() {
		b, err := AppendFrame(nil, MsgPack, &fr)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(false, b)
	}
	f.Fuzz(func(t *testing.T, answer bool, payload []byte) {
		var s *Stream
		boundedBy(t, 2*payloadFactor, len(payload), func() {
			c := &Client{nc: &nats.Conn{}, streams: map[string]*Stream{}}
			c.cfg.Logger, c.cfg.QueueFrames = slog.New(slog.DiscardHandler), 1
			s = &Stream{client: c, id: "abcdefgh", replies: "replies1", ready: make(chan struct{}, 1)}
			s.resume.tries = resumeTries // it asks nothing: there is no connection
			m := &nats.Msg{Subject: "infer.out.me." + s.id, Data: payload}
			if answer {
				m.Subject = "infer.out.me." + s.replies
			}
			if len(payload) > 0 {
				s.receive(m)
				s.receive(m)
			}
		})
		if len(s.queue) > 3 || s.ended != (len(s.queue) > 0 && s.queue[len(s.queue)-1].Type.Terminal()) {
			t.Fatalf("%d frames wait, ended: %v", len(s.queue), s.ended)
		}
	})
}

// FuzzStoredRecord reads what the server answers to gets, in both forms.
func FuzzStoredRecord(f *testing.F) {
	f.Add([]byte(`{"type":"x","message":{"subject":"infer.final.me.abcdefgh","seq":1,"hdrs":"TkFUUy8xLjANCkE6IGINCg0K","data":"eA==","time":"2026-01-02T03:04:05Z"}}`), "1", "2026-01-02T03:04:05Z")
	f.Add([]byte(`{"error":{"code":404,"err_code":10037,"description":"no message found"}}`), "", "")
	f.Add([]byte(`{"message":{"hdrs":"eA=="}}`), strings.Repeat("9", 600), strings.Repeat("2026", 200))
	f.Fuzz(func(t *testing.T, payload []byte, sequence, stamp string) {
		boundedBy(t, payloadFactor, len(payload), func() {
			var r apiReply
			if json.Unmarshal(payload, &r) != nil {
				return
			}
			rec, err := r.record()
			_, refused := errors.AsType[*apiError](err)
			if (rec == nil) == (err == nil) || err != nil && !refused && !errors.Is(err, ErrNotStored) && !errors.Is(err, ErrBadRecord) {
				t.Fatalf("%+v, %v", rec, err)
			}
			if !refused { // those are the server's own words
				checkShort(t, err)
			}
		})
		h, size := fuzzHeader(headerSequence, sequence, headerStamp, stamp)
		boundedBy(t, payloadFactor, size, func() {
			_, err := directRecord(&nats.Msg{Header: h})
			if err != nil && !errors.Is(err, ErrBadRecord) {
				t.Fatal(err)
			}
			checkShort(t, err)
		})
	})
}
