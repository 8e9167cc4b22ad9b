package broker_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
)

// TestErrorsNameTheServer wants an error that comes after the connection was
// made to say to which server.
func TestErrorsNameTheServer(t *testing.T) {
	t.Parallel()
	plain := plainServer(t, &server.Options{})
	_, err := broker.Connect(t.Context(), broker.Config{URL: strings.Replace(plain.ClientURL(), "nats://", "nats://u:s3cret@", 1)})
	if !errors.Is(err, broker.ErrNoJetStream) || !strings.Contains(err.Error(), plain.ClientURL()) || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("got %v, want %s named", err, plain.ClientURL())
	}
}

// plainServer is a server without JetStream.
func plainServer(t *testing.T, opts *server.Options) *server.Server {
	t.Helper()
	opts.Host, opts.Port, opts.NoLog, opts.NoSigs = "127.0.0.1", server.RANDOM_PORT, true, true
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("server does not start")
	}
	return s
}

// TestUnauthorized wants a refused user to be told apart from an absent server,
// whether or not the connection is retried.
func TestUnauthorized(t *testing.T) {
	t.Parallel()
	url := plainServer(t, &server.Options{Username: "u", Password: "right"}).ClientURL()
	url = strings.Replace(url, "nats://", "nats://u:s3cret@", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, dialed := broker.Dial(ctx, url, "c", nil)
	_, connected := broker.Connect(ctx, broker.Config{URL: url})
	_, retried := broker.Connect(ctx, broker.Config{URL: url, RetryConnect: true})
	for name, err := range map[string]error{"dial": dialed, "connect": connected, "connect with retries": retried} {
		if !errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrNoServers) {
			t.Errorf("%s: %v is not ErrAuthorization", name, err)
		}
		if err != nil && (strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "s3cret") ||
			!strings.Contains(strings.ToLower(err.Error()), "authorization violation")) {
			t.Errorf("%s: %q", name, err)
		}
	}
}

// lockedBuffer is a buffer for a logger.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// TestAbsentServerIsLogged wants one warning at once, and no flood.
func TestAbsentServerIsLogged(t *testing.T) {
	t.Parallel()
	var out lockedBuffer
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := broker.Connect(ctx, broker.Config{
			URL: "nats://u:s3cret@127.0.0.1:" + strconv.Itoa(freePort(t)), RetryConnect: true,
			Logger: slog.New(slog.NewTextHandler(&out, nil)),
		})
		ended <- err
	}()
	eventually(t, "the absent server is logged", func() bool { return strings.Contains(out.String(), "level=WARN") })
	<-time.After(1200 * time.Millisecond) // several tries
	cancel()
	err := <-ended
	if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "\n") {
		t.Errorf("connect: %q", err)
	}
	if log := out.String(); strings.Count(log, "not reachable") != 1 || strings.Contains(log, "s3cret") || !strings.Contains(log, "127.0.0.1") {
		t.Errorf("log:\n%s", log)
	}
}

// TestConnectEndsWithItsContext meets a server that accepts and says nothing.
func TestConnectEndsWithItsContext(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	url := "nats://" + l.Addr().String()
	for name, connect := range map[string]func(context.Context) error{
		"dial": func(ctx context.Context) error {
			_, err := broker.Dial(ctx, url, "c", nil)
			return err
		},
		"connect": func(ctx context.Context) error {
			_, err := broker.Connect(ctx, broker.Config{URL: url})
			return err
		},
		"connect with retries": func(ctx context.Context) error {
			_, err := broker.Connect(ctx, broker.Config{URL: url, RetryConnect: true})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		start := time.Now()
		if err := connect(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		if d := time.Since(start); d >= 5*time.Second { // the library's own patience
			t.Errorf("%s took %v", name, d)
		}
	}
}
