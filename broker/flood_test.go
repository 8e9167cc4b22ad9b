package broker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// TestFloodOfQuestions has one client ask thousands of resume and cancel questions
// before another asks a few. The other's are answered long before the flood's, which
// are counted in the order in which they come.
func TestFloodOfQuestions(t *testing.T) {
	t.Parallel()
	const flood, few = 4000, 20
	server, conn := setup(t, broker.Config{})
	if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
		t.Fatal(err)
	}
	finals, err := conn.Finals()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = finals.Close() })
	service := serve(t, conn, broker.ServiceConfig{Worker: "w1", Finals: finals, Cancel: func(string, string, uint64) broker.CancelState {
		return broker.CancelUnknown
	}}, nil)
	for _, client := range []string{"flood", "good"} {
		storeFinalOf(t, conn, client, "finished1", "x")
	}
	for _, tc := range []struct{ subject, question, answer string }{
		{"infer.resume.", `{"id":"elsewhere","seq":7}`, "unknown"},
		{"infer.cancel.", `{"id":"finished1"}`, "finished"},
	} {
		hostile, err := broker.Dial(t.Context(), server.URL(), "hostile", nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(hostile.Close)
		nc := conn.NATS()
		out, err := nc.SubscribeSync("_INBOX." + tc.answer + ".*")
		if err != nil {
			t.Fatal(err)
		}
		_ = out.SetPendingLimits(-1, -1)
		for range flood {
			if err := hostile.PublishRequest(tc.subject+"flood", "_INBOX."+tc.answer+".flood", []byte(tc.question)); err != nil {
				t.Fatal(err)
			}
		}
		if err := hostile.Flush(); err != nil { // all of them are ahead
			t.Fatal(err)
		}
		for range few {
			if err := nc.PublishRequest(tc.subject+"good", "_INBOX."+tc.answer+".good", []byte(tc.question)); err != nil {
				t.Fatal(err)
			}
		}
		before := 0
		for good := 0; good < few; {
			m, err := out.NextMsg(30 * time.Second)
			if err != nil {
				t.Fatalf("%s: %d answers, %d of the flood before: %v", tc.subject, good, before, err)
			}
			if !strings.Contains(string(m.Data), tc.answer) {
				t.Fatalf("answer %s", m.Data)
			}
			if m.Subject == "_INBOX."+tc.answer+".good" {
				good++
			} else {
				before++
			}
		}
		t.Logf("%s: %d of %d of the flood before the last", tc.subject, before, flood)
		if before > flood*3/4 {
			t.Errorf("%s: %d of %d of the flood were answered before", tc.subject, before, flood)
		}
		if err := out.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
	}
	if n := service.Stats().Dropped; n != 0 {
		t.Errorf("%d dropped, though all may wait", n)
	}
}
