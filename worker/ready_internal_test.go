package worker

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cellmq/cellmq/broker/brokertest"
)

// TestReadyIsWhatReadyzSays wants cellmq_ready to be 0 before a worker runs and when
// it drains, and 1 while it takes requests.
func TestReadyIsWhatReadyzSays(t *testing.T) {
	t.Parallel()
	server := brokertest.Server(t)
	cfg := DefaultConfig()
	cfg.NatsURL, cfg.AdminAddress, cfg.CacheDir = server.URL(), "", t.TempDir()
	cfg.Profile, cfg.Models = 0, []string{"langid"}
	w, err := New(cfg, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	ready := newReady(w)
	if v := testutil.ToFloat64(ready); v != 0 {
		t.Errorf("%v before it runs", v)
	}
	done := make(chan error, 1)
	go func() { done <- w.Run(t.Context()) }()
	select {
	case <-w.Ready():
	case err := <-done:
		t.Fatal(err)
	}
	if v := testutil.ToFloat64(ready); v != 1 {
		t.Errorf("%v while it takes requests", v)
	}
	w.Drain()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if v := testutil.ToFloat64(ready); v != 0 {
		t.Errorf("%v after it drained", v)
	}
}
