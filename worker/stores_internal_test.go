package worker

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

func TestStoresHavePatience(t *testing.T) {
	t.Parallel()
	begin, failure := time.Unix(1000, 0), errors.New("away")
	s := newStores(20*time.Second, begin)
	for i, turn := range []struct {
		at      int
		err     error
		changed bool
		ready   bool
	}{
		{5, nil, false, true},
		{15, failure, false, true}, // an election
		{24, failure, false, true},
		{25, failure, true, false},
		{30, failure, false, false},
		{31, nil, true, true},
		{50, failure, false, true},
		{51, failure, true, false},
		{52, nil, true, true},
	} {
		if changed := s.probed(turn.err, begin.Add(time.Duration(turn.at)*time.Second)); changed != turn.changed {
			t.Errorf("turn %d: changed %v", i, changed)
		}
		if err := s.failing(); (err == nil) != turn.ready || err != nil && !errors.Is(err, failure) {
			t.Errorf("turn %d: %v", i, err)
		}
	}
}

// TestShortStoreIsTold fills the stream of finals: those that are dropped before
// their time raise the alarm, in the stream that drops them and no other.
func TestShortStoreIsTold(t *testing.T) {
	t.Parallel()
	server := brokertest.Server(t)
	w, err := New(DefaultConfig(), Deps{})
	if err != nil {
		t.Fatal(err)
	}
	w.conn = brokertest.Connect(t, server, broker.Config{Stream: broker.StreamConfig{Finals: broker.StoreConfig{MaxBytes: 64 << 10}}})
	if err := w.conn.EnsureStreams(t.Context(), []string{"m"}); err != nil {
		t.Fatal(err)
	}
	short := func(stream string) float64 {
		t.Helper()
		if err := w.checkFill(t.Context()); err != nil {
			t.Fatal(err)
		}
		return testutil.ToFloat64(w.metrics.short.WithLabelValues(stream))
	}
	finals, err := w.conn.Finals()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = finals.Close() })
	store := func(n int) {
		t.Helper()
		verdicts := make(chan broker.Verdict, n)
		for i := range n {
			f := &broker.StoredFinal{Client: "me", ID: "request" + string(rune('A'+i)), Worker: "w", Epoch: 1, Attempt: 1, Frame: make([]byte, 4000)}
			if err := finals.Store(f, time.Now().Add(time.Minute), func(v broker.Verdict) { verdicts <- v }); err != nil {
				t.Fatal(err)
			}
		}
		for range n {
			if v := <-verdicts; v.Err != nil {
				t.Fatal(v.Err)
			}
		}
	}
	store(8)
	if s := short("INFER_FINAL"); s != 0 {
		t.Errorf("half full: %v seconds short", s)
	}
	fill, err := w.conn.Fill(t.Context())
	if err != nil || len(fill) != 3 || fill[0].Messages != 8 {
		t.Fatalf("%+v, %v", fill, err)
	}
	t.Logf("a record takes %d bytes beside its frame", fill[0].Bytes/8-4000)
	store(26)
	if s := short("INFER_FINAL"); s < 600 || s > 900 {
		t.Errorf("full of new finals: %v seconds short of 15 minutes", s)
	}
	if s := short("INFER_STATE") + short("INFER_OUT"); s != 0 {
		t.Errorf("the others: %v seconds short", s)
	}
}
