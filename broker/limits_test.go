package broker_test

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

// lines is a log that several goroutines write.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

func streamConfig(t *testing.T, js jetstream.JetStream, name string) jetstream.StreamConfig {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().Config
}

// TestStoresOnlyGrow has workers of different settings ensure the streams, one of
// them twice: the largest bounds stay, and whoever wants less is told.
func TestStoresOnlyGrow(t *testing.T) {
	t.Parallel()
	server := brokertest.Server(t)
	log := &lines{}
	ensure := func(bytes, messages int64) jetstream.JetStream {
		t.Helper()
		conn := brokertest.Connect(t, server, broker.Config{
			Logger: slog.New(slog.NewTextHandler(log, nil)),
			Stream: broker.StreamConfig{Finals: broker.StoreConfig{MaxBytes: bytes, MaxMessages: messages}, States: broker.StoreConfig{MaxBytes: bytes}},
		})
		if err := conn.EnsureStreams(t.Context(), []string{"echo"}); err != nil {
			t.Fatal(err)
		}
		js, err := jetstream.New(conn.NATS())
		if err != nil {
			t.Fatal(err)
		}
		return js
	}
	const told = "stream is larger than configured, and stays"
	for i, turn := range []struct {
		bytes, messages         int64 // configured
		wantBytes, wantMessages int64
		told                    int
	}{
		{16 << 20, 1000, 16 << 20, 1000, 0},
		{32 << 20, 2000, 32 << 20, 2000, 0},
		{16 << 20, 1000, 32 << 20, 2000, 2}, // finals and states
		{32 << 20, 2000, 32 << 20, 2000, 2},
		{16 << 20, 3000, 32 << 20, 3000, 4}, // each bound by itself
		{64 << 20, 3000, 64 << 20, 3000, 4},
	} {
		js := ensure(turn.bytes, turn.messages)
		finals, states := streamConfig(t, js, "INFER_FINAL"), streamConfig(t, js, "INFER_STATE")
		if finals.MaxBytes != turn.wantBytes || finals.MaxMsgs != turn.wantMessages || states.MaxBytes != turn.wantBytes {
			t.Errorf("turn %d: finals %d bytes, %d messages, states %d bytes", i, finals.MaxBytes, finals.MaxMsgs, states.MaxBytes)
		}
		if n := log.count(told); n != turn.told {
			t.Errorf("turn %d: told %d times, want %d", i, n, turn.told)
		}
	}
	// An operator makes it smaller, and it stays so with workers who want as much.
	js := ensure(64<<20, 3000)
	for _, name := range []string{"INFER_FINAL", "INFER_STATE"} {
		cfg := streamConfig(t, js, name)
		cfg.MaxBytes = 16 << 20
		if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	if finals := streamConfig(t, ensure(16<<20, 3000), "INFER_FINAL"); finals.MaxBytes != 16<<20 {
		t.Errorf("made smaller: %d bytes", finals.MaxBytes)
	}
}

// TestSealedStreams seals each stream in turn: those without which a request has
// no place or no proof of its answer are refused, the others are an error in the
// log. A sealed one keeps none of the others from being made again.
func TestSealedStreams(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]bool{
		"INFER": true, "INFER_FINAL": true, "INFER_STATE": true, "INFER_ADVISORY": true, "INFER_DLQ": false, "INFER_OUT": false,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := &lines{}
			server := brokertest.Server(t)
			conn := brokertest.Connect(t, server, broker.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
			ensure := func() error { return conn.EnsureStreams(t.Context(), []string{"echo"}) }
			if err := ensure(); err != nil {
				t.Fatal(err)
			}
			js, err := jetstream.New(conn.NATS())
			if err != nil {
				t.Fatal(err)
			}
			cfg := streamConfig(t, js, name)
			cfg.Sealed = true
			if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			if name == "INFER_FINAL" {
				if err := js.DeleteStream(t.Context(), "INFER_STATE"); err != nil {
					t.Fatal(err)
				}
			}
			err = ensure()
			if refused && (!errors.Is(err, broker.ErrSealed) || !strings.Contains(err.Error(), name)) || !refused && err != nil {
				t.Errorf("error %v", err)
			}
			if name != "INFER" && log.count("stream is sealed and takes no records") != 1 {
				t.Errorf("log %s", &log.text)
			}
			if name == "INFER_FINAL" {
				streamConfig(t, js, "INFER_STATE")
			}
		})
	}
}
