package broker_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

// TestReceiptsByConfiguration has c1 name what is not its own as the reply of
// durable requests. The receipts get there with permissions alone, and with
// accounts they do not.
func TestReceiptsByConfiguration(t *testing.T) {
	t.Parallel()
	targets := []string{
		"infer.final.c2.abcdefgh", "infer.state.c2.abcdefgh", "infer.outr.c2.abcdefgh", "infer.dlq.echo",
		"infer.req.echo.std.c2", "infer.out.c2.abcdefgh", "infer.cancel.c2", "infer.resume.c2", "infer.rt.echo.c2",
		"infer.ctl.w1", "_INBOX_cellmq.w1.x", "_INBOX.operator.x",
	}
	for _, tt := range []struct {
		name    string
		start   func(testing.TB) *brokertest.SecureT
		arrives bool
	}{
		{"permissions", brokertest.Secure, true},
		{"accounts", brokertest.Accounts, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := &secured{tt.start(t)}
			stray := strayReceipts(t, s, targets)
			for _, subject := range targets {
				if n := stray[subject]; tt.arrives != (n > 0) {
					t.Errorf("%s got %d receipts", subject, n)
				}
			}
		})
	}
}

// strayReceipts publishes a request of c1 for each target, its reply, and returns
// what then is in the streams and has come to others, by subject.
func strayReceipts(t *testing.T, s *secured, targets []string) map[string]int {
	t.Helper()
	conn := s.worker(t)
	if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
		t.Fatal(err)
	}
	operator := s.dial(t, "operator")
	js, err := operator.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	c2 := s.dial(t, "c2")
	heard := make(chan *nats.Msg, 256)
	for subject, nc := range map[string]*nats.Conn{
		"infer.out.c2.>": c2, "infer.outr.c2.>": c2, "_INBOX.operator.>": operator,
		"infer.cancel.*": conn.NATS(), "infer.resume.*": conn.NATS(), "infer.rt.echo.*": conn.NATS(),
		"infer.ctl.*": conn.NATS(), "_INBOX_cellmq.w1.x": conn.NATS(),
	} {
		if _, err := nc.ChanSubscribe(subject, heard); err != nil {
			t.Fatal(err)
		}
	}
	flush := func(conns ...*nats.Conn) {
		for _, nc := range conns {
			if err := nc.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	flush(c2, operator, conn.NATS())
	c1 := s.dial(t, "c1", broker.OwnInbox("infer", "c1"))
	for _, reply := range targets {
		m := &nats.Msg{Subject: "infer.req.echo.std.c1", Reply: reply, Data: []byte("x")}
		if err := c1.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	// The stream takes one after the other.
	m, err := c1.Request("infer.req.echo.std.c1", []byte("x"), 10*time.Second)
	var receipt struct {
		Stream string
		Seq    int
	}
	if err != nil || json.Unmarshal(m.Data, &receipt) != nil || receipt.Stream != "INFER" || receipt.Seq <= len(targets) {
		t.Fatalf("receipt %v, %v", m, err)
	}
	stray := map[string]int{}
	for _, stream := range []string{"INFER", "INFER_FINAL", "INFER_STATE", "INFER_OUT", "INFER_DLQ"} {
		info, err := js.StreamInfo(stream, &nats.StreamInfoRequest{SubjectsFilter: ">"})
		if err != nil {
			t.Fatal(err)
		}
		for subject, n := range info.State.Subjects {
			stray[subject] += int(n)
		}
	}
	flush(c2, operator, conn.NATS())
	for {
		select {
		case m := <-heard:
			if strings.Contains(string(m.Data), `"INFER"`) {
				stray[m.Subject]++
			}
		default:
			return stray
		}
	}
}

// TestGoneAcrossAccounts notices that a client of another account has left, and
// that another is there.
func TestGoneAcrossAccounts(t *testing.T) {
	t.Parallel()
	s := &secured{brokertest.Accounts(t)}
	gone := make(chan string, 8)
	out, err := s.worker(t).Publisher(broker.PublisherConfig{Gone: func(s *broker.TokenStream) { gone <- s.ID() }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := out.Close(); err != nil {
			t.Error(err)
		}
	}()
	open := func(id, reply string) *broker.TokenStream {
		return out.Stream(&broker.Delivery{Request: &broker.Request{ID: id, Reply: reply}, Lease: &broker.Lease{}})
	}
	c1 := s.dial(t, "c1")
	frames, err := c1.SubscribeSync("infer.out.c1.*")
	if err != nil {
		t.Fatal(err)
	}
	if err := c1.Flush(); err != nil {
		t.Fatal(err)
	}
	heard, unheard := open("heard111", "infer.out.c1.heard111"), open("unheard1", "infer.out.c2.unheard1")
	eventually(t, "absence is noticed", func() bool {
		for _, s := range []*broker.TokenStream{heard, unheard} {
			if err := s.Heartbeat("decode"); err != nil {
				t.Fatal(err)
			}
		}
		return len(gone) > 0
	})
	if id := <-gone; id != "unheard1" || len(gone) != 0 {
		t.Errorf("gone: %s and %d more", id, len(gone))
	}
	if m, err := frames.NextMsg(10 * time.Second); err != nil || m.Subject != "infer.out.c1.heard111" {
		t.Errorf("frame %v, %v", m, err)
	}
}

// TestReceiptToOwnRequests has c1 name its own subjects of requests as the reply.
// The receipt does not come back in as a request.
func TestReceiptToOwnRequests(t *testing.T) {
	t.Parallel()
	s := &secured{brokertest.Accounts(t)}
	conn := s.worker(t)
	if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
		t.Fatal(err)
	}
	heard := make(chan *nats.Msg, 16)
	own := []string{"infer.rt.echo.c1", "infer.cancel.c1", "infer.resume.c1"}
	for _, subject := range own {
		if _, err := conn.NATS().ChanSubscribe(subject, heard); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.NATS().Flush(); err != nil {
		t.Fatal(err)
	}
	c1 := s.dial(t, "c1", broker.OwnInbox("infer", "c1"))
	for _, reply := range append(own, "infer.req.echo.std.c1") {
		if err := c1.PublishMsg(&nats.Msg{Subject: "infer.req.echo.low.c1", Reply: reply, Data: []byte("x")}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 2 {
		m, err := c1.Request("infer.req.echo.low.c1", []byte("x"), 10*time.Second)
		if want := fmt.Sprintf(`"seq":%d`, len(own)+2+n); err != nil || !strings.Contains(string(m.Data), want) {
			t.Errorf("receipt %s, %v, want %s", m.Data, err, want)
		}
	}
	if err := conn.NATS().Flush(); err != nil {
		t.Fatal(err)
	}
	if len(heard) > 0 {
		m := <-heard
		t.Errorf("%s got %q", m.Subject, m.Data)
	}
}

// TestAccountsResume reads a stored final back, which no other client can, and hears
// at once when there is no queue and no worker.
func TestAccountsResume(t *testing.T) {
	t.Parallel()
	s := &secured{brokertest.Accounts(t)}
	nc, c1 := s.client(t, "c1")
	for _, subject := range []string{"infer.rt.echo.c1", "infer.cancel.c1", "infer.resume.c1", "infer.req.echo.std.c1"} {
		if _, err := nc.Request(subject, []byte("x"), 10*time.Second); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("%s without a worker: %v", subject, err)
		}
	}
	conn, _ := secureWorker(t, s)
	mine := finalOf("w1", "finished", 1)
	mine.Client, mine.Frame = "c1", []byte(`{"type":"final","id":"finished","text":"mine"}`)
	if v := verdictOn(t, finals(t, conn), mine); !v.Mine {
		t.Fatalf("verdict %+v", v)
	}
	st, err := c1.Attach(t.Context(), "finished", broker.AttachOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if f, err := st.Final(); err != nil || f.Text != "mine" {
		t.Errorf("attached: %q, %v", f.Text, err)
	}
	if r, err := c1.Cancel(t.Context(), "finished"); err != nil || r.State != broker.CancelFinished {
		t.Errorf("cancel: %+v, %v", r, err)
	}
	other, _ := s.client(t, "c2")
	if m, err := other.Request("infer.resume.c2", []byte(`{"id":"finished"}`), 10*time.Second); err != nil || !strings.Contains(string(m.Data), "unknown") {
		t.Errorf("another's resume: %v, %v", m, err)
	}
}
