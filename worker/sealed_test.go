package worker_test

import (
	"errors"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/worker"
)

// TestSealedFinals wants a worker not to become ready where no final can be stored,
// and to say why.
func TestSealedFinals(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	layOut(t, server, worker.Deps{})
	js := jetStream(t, connect(t, server))
	s, err := js.Stream(t.Context(), "INFER_FINAL")
	if err != nil {
		t.Fatal(err)
	}
	c := s.CachedInfo().Config
	c.Sealed = true
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	cfg := worker.DefaultConfig()
	cfg.AdminAddress, cfg.NatsURL, cfg.Profile, cfg.Models = "127.0.0.1:0", server.URL(), 0, []string{"g2p-en"}
	w, err := worker.New(cfg, worker.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Run(t.Context()) }()
	select {
	case err := <-ended:
		if !errors.Is(err, broker.ErrSealed) {
			t.Errorf("ended with %v", err)
		}
	case <-w.Ready():
		t.Error("ready")
	case <-time.After(patience):
		t.Error("neither ready nor ended")
	}
}
