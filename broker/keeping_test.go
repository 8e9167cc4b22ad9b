package broker_test

import (
	"testing"

	"github.com/cellmq/cellmq/broker"
)

// keepingEcho answers with the input and, as workers do, stores the final before it
// is sent; clients that missed it can read it back. It ends with the test.
func keepingEcho(t *testing.T, conn *broker.Conn) func(*broker.Delivery, *broker.TokenStream) {
	t.Helper()
	store := finals(t, conn)
	service, err := conn.Serve(t.Context(), broker.ServiceConfig{Worker: "w1", Finals: store})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := service.Close(); err != nil {
			t.Error(err)
		}
	})
	return func(d *broker.Delivery, s *broker.TokenStream) {
		defer d.Done()
		if err := keep(store, d, s); err != nil {
			_ = s.Retry()
			_ = d.Lease.Release(0)
			return
		}
		_ = d.Lease.Settle()
	}
}

// keep sends the output and the one final that is stored of d. After an error its
// stream is open.
func keep(store *broker.Finals, d *broker.Delivery, s *broker.TokenStream) error {
	return keepAndSend(store, d, s, s.SendTerminal)
}

// keepAndSend is keep, whose own final is sent by send.
func keepAndSend(store *broker.Finals, d *broker.Delivery, s *broker.TokenStream, send func(broker.Encoded) error) error {
	r := d.Request
	if d.Err != nil {
		return s.Fail(d.Err, r.Params.Meta)
	}
	_ = s.Accepted(&broker.Frame{Model: r.Model, Version: "1", Digest: "d"})
	tokens := []rune(r.Input.Text)
	for i := range tokens {
		_ = s.Token(&broker.Frame{Text: string(tokens[i]), Tokens: tokens[i : i+1], Index: i})
	}
	last, err := s.Terminal(&broker.Frame{
		Type: broker.FrameFinal, Text: r.Input.Text, Tokens: tokens, Model: r.Model, Version: "1", Digest: "d",
		Final: &broker.Final{FinishReason: broker.FinishStop, LogProb: -0.5, Deterministic: true},
	})
	if err != nil {
		return err
	}
	verdict := make(chan broker.Verdict, 1)
	err = store.Store(&broker.StoredFinal{
		Client: r.Client, ID: r.ID, Worker: "w1", Epoch: d.Lease.Epoch, Attempt: d.Lease.Attempt,
		Sequence: r.Sequence, Request: r.Hash, Encoding: r.Encoding, Frame: last.Frame,
	}, d.Lease.Deadline(), func(v broker.Verdict) { verdict <- v })
	if err != nil {
		return err
	}
	switch v := <-verdict; {
	case v.Err != nil:
		return v.Err
	case v.Other != nil:
		return s.Replay(v.Other.Frame)
	default:
		return send(last)
	}
}
