package broker_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

// TestWebSocket reads a stream over WebSocket, and has pages of other origins
// refused.
func TestWebSocket(t *testing.T) {
	t.Parallel()
	allowed := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(allowed, []byte(`websocket { port: -1, no_tls: true, allowed_origins: ["https://example.org"] }`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		cfg     broker.ServerConfig
		origins map[string]int // status of the handshake
	}{
		"setting": {
			broker.ServerConfig{WebSocketPort: -1},
			map[string]int{"": http.StatusSwitchingProtocols, "https://example.org": http.StatusForbidden, "same": http.StatusSwitchingProtocols},
		},
		"file": {
			broker.ServerConfig{ConfigFile: allowed, Port: broker.PortNone},
			map[string]int{"": http.StatusSwitchingProtocols, "https://example.org": http.StatusSwitchingProtocols, "https://example.com": http.StatusForbidden},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.cfg.DataDir = t.TempDir()
			s, err := broker.StartServer(t.Context(), tt.cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(s.Shutdown)
			url := s.WebSocketURL()
			if !strings.HasPrefix(url, "ws://") || strings.HasSuffix(url, ":-1") || strings.HasSuffix(url, ":0") {
				t.Fatalf("url %q", url)
			}
			conn, err := broker.Connect(t.Context(), broker.Config{URL: url})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(conn.NATS().Close)
			startWorker(t, conn, []string{"echo"}, 2, echo)
			nc, err := broker.Dial(t.Context(), url, "page", nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			c, err := broker.NewClient(nc, broker.ClientConfig{})
			if err != nil {
				t.Fatal(err)
			}
			st, err := c.Request(t.Context(), "echo", broker.RequestOptions{Input: broker.Input{Text: "over a socket"}})
			if err != nil {
				t.Fatal(err)
			}
			if text, f := read(t, st); text != "over a socket" || f.Text != text {
				t.Errorf("streamed %q, final %q", text, f.Text)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			for origin, want := range tt.origins {
				if got := handshake(t, url, origin); got != want {
					t.Errorf("origin %q: status %d, want %d", origin, got, want)
				}
			}
		})
	}
	if url := brokertest.Server(t).WebSocketURL(); url != "" {
		t.Errorf("url %q of a server without that port", url)
	}
}

// handshake asks for a WebSocket as a page does.
func handshake(t *testing.T, url, origin string) int {
	t.Helper()
	url = strings.Replace(url, "ws://", "http://", 1)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
	} {
		r.Header.Set(name, value)
	}
	switch origin {
	case "":
	case "same":
		r.Header.Set("Origin", url)
	default:
		r.Header.Set("Origin", origin)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode
}
