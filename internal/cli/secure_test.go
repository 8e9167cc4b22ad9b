package cli_test

import (
	"context"
	"testing"

	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/worker"
)

// TestSecureServer uses the commands as a client that has to prove who it is.
func TestSecureServer(t *testing.T) {
	s := brokertest.Secure(t)
	cfg := worker.DefaultConfig()
	cfg.NatsURL, cfg.NatsNkey, cfg.AdminAddress, cfg.Models = s.URL(), s.Seeds["worker"], "", []string{"g2p-en"}
	cfg.Profile = 0
	w, err := worker.New(cfg, worker.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-w.Ready():
	case err := <-done:
		done <- nil
		t.Fatal(err)
	}
	t.Setenv("CELLMQ_NATS_URL", s.URL())
	run(t, "", "request", "g2p-en", "hello", "--client", "c1").want(t, 1, "", "uthorization")
	t.Setenv("CELLMQ_NATS_NKEY", s.Seeds["c1"])
	for _, path := range [][]string{{}, {"--rt"}, {"--id", "finished1"}} {
		args := append([]string{"request", "g2p-en", "hello", "--client", "c1"}, path...)
		run(t, "", args...).want(t, 0, "HH EH1 L OW0", "")
	}
	// The workers say so, long before the wait for a queue without a leader ends.
	run(t, "", "request", "g2p-em", "hello", "--client", "c1", "--timeout", "8s").want(t, 1, "", "unknown_model")
	run(t, "", "cancel", "finished1", "--client", "c1").want(t, 0, "finished", "")
	run(t, "", "cancel", "finished1", "--client", "c2").want(t, 1, "unknown", "")
	t.Setenv("CELLMQ_NATS_NKEY", s.Seeds["operator"])
	run(t, "", "dlq", "list").want(t, 0, "", "")
	run(t, "", "request", "--embedded", "g2p-en", "hello").want(t, 0, "HH EH1 L OW0", "") // a key is for the server
}
