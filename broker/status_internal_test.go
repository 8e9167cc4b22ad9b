package broker

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// likeServer is what a server makes of a stored header for a direct get: its own
// lines take the place of the last line break.
func likeServer(stored []byte, sequence uint64) []byte {
	const lines = "Nats-Stream: INFER_DLQ\r\nNats-Subject: infer.dlq.x\r\nNats-Sequence: %d\r\nNats-Time-Stamp: 2026-01-02T03:04:05Z\r\n\r\n"
	if len(stored) <= 2 {
		stored = []byte("NATS/1.0\r\n\r\n")
	}
	return fmt.Appendf(stored[:len(stored)-2:len(stored)-2], lines, sequence)
}

// FuzzStatus publishes any header and data. What a direct get brings of it is
// never the server's word, and no harm to the other records of its batch. What
// the intake gets of it is delivered, and ends no pull.
func FuzzStatus(f *testing.F) {
	for _, s := range []string{
		"", "NATS/1.0\r\nStatus: 204\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 9\r\n\r\n",
		"NATS/1.0\r\nStatus: 204\r\n\r\nA: b\r\n\r\n", "NATS/1.0 503 x\nA: b\n\n", "NATS/1.0\nStatus:404\n\n", "NATS/1.0\r\nx\r\n\r\n",
		"NATS/1.0\r\nNats-Sequence: 8\r\nNats-Time-Stamp: 2026-01-02T03:04:05Z\r\n\r\n\r\n", "NATS/1.0\r\nStatus: 409\r\nDescription: Batch Completed\r\n\r\n",
	} {
		f.Add([]byte(s), []byte{})
		f.Add([]byte(s), []byte("x"))
	}
	f.Fuzz(func(t *testing.T, stored, data []byte) {
		wire := likeServer(stored, 5)
		h, _ := nats.DecodeHeadersMsg(wire)
		if status, ok := readStatus(h, len(data), len(wire)+len(data)); ok {
			t.Fatalf("a record is the status %q: %q", status, wire)
		}
		b := batch{next: 4}
		answers := []*nats.Msg{
			{Header: nats.Header{headerSequence: {"4"}, headerStamp: {"2026-01-02T03:04:05Z"}}},
			{Header: h, Data: data},
			{Header: nats.Header{headerStatus: {"204"}, headerDescription: {"EOB"}, headerPending: {"1"}, headerLast: {"5"}}},
		}
		if _, ok := statusOf(answers[1]); ok { // only for want of a size: a message made here has none
			answers = slices.Delete(answers, 1, 2)
		}
		for _, m := range answers {
			_, _ = b.take(m)
		}
		if len(b.records) == 0 || b.records[0].sequence != 4 || b.next != 6 || !b.more {
			t.Fatalf("batch %+v", b)
		}

		h, _ = nats.DecodeHeadersMsg(stored)
		delivered := 0
		l := &loop{
			intake: &Intake{}, conn: &Conn{nc: &nats.Conn{}, log: slog.New(slog.DiscardHandler)}, credits: NewCredits(1),
			decoder: newTestDecoder(), deliver: func(*Delivery) { delivered++ },
		}
		l.credits.TryTake(1)
		q := &queue{model: "m", priority: Std, sub: &subscription{inbox: "inbox"}, pull: &pull{turn: 1, asked: 1}}
		l.handle(event{queue: q, at: time.Now(), sub: q.sub, msg: &nats.Msg{
			Subject: "infer.req.m.std.1", Reply: "$JS.ACK.INFER.m_std.1.5.5.1.0", Header: h, Data: data, Sub: &nats.Subscription{},
		}})
		if delivered != 1 || q.failures != 0 || q.suspect {
			t.Fatalf("%d delivered, queue %+v", delivered, q)
		}
	})
}

// TestStatuses reads the server's own words as they come.
func TestStatuses(t *testing.T) {
	t.Parallel()
	for wire, want := range map[string]string{
		"NATS/1.0 204 EOB\r\nNats-Num-Pending: 18446744073709551615\r\nNats-Last-Sequence: 18446744073709551615\r\n\r\n": "204",
		"NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: 1\r\nNats-UpTo-Sequence: 1\r\n\r\n":              "204",
		"NATS/1.0 404 Message Not Found\r\n\r\n": "404",
		"NATS/1.0 404\r\n\r\n":                   "404",
		"NATS/1.0 408 Empty Request\r\n\r\n":     "408",
		"NATS/1.0 503\r\n\r\n":                   "503",
		"NATS/1.0 503\r\nNats-Subject: $JS.API.DIRECT.GET.INFER_FINAL.infer\r\n\r\n": "503",
		"NATS/1.0\r\nA: b\r\n\r\n": "",
	} {
		h, err := nats.DecodeHeadersMsg([]byte(wire))
		if err != nil {
			t.Fatal(err)
		}
		if status, ok := readStatus(h, 0, len(wire)); status != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", wire, status, ok)
		}
	}
}
