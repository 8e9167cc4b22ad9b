package worker_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/worker"
)

// asked asks the admin server for a path under a host's name, as a page of an origin
// that wants a WebSocket if it has one.
func asked(t *testing.T, w *started, path, host, origin string) (status int, header http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.AdminAddress()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	if origin != "" {
		for name, value := range map[string]string{
			"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": origin,
		} {
			r.Header.Set(name, value)
		}
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := answer.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, answer.Header
}

// TestLivePage serves the page with a policy, and passes its connection on to the
// server for origins and names that are surely its own.
func TestLivePage(t *testing.T) {
	t.Parallel()
	server, err := broker.StartServer(t.Context(), broker.ServerConfig{DataDir: t.TempDir(), WebSocketPort: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	w := start(t, nil, worker.Deps{Server: server}, nil)
	for _, path := range []string{"/", "/live/", "/live/main.js", "/live/settings.json"} {
		for host, wants := range map[string]string{"127.0.0.1:9464": "ws://127.0.0.1:9464", "a.example; script-src *": "connect-src 'self';"} {
			status, header := asked(t, w, path, host, "")
			policy := header.Get("Content-Security-Policy")
			if only := header.Get("Cross-Origin-Resource-Policy"); status == http.StatusOK && only != "same-origin" {
				t.Errorf("%s may be part of %q pages", path, only)
			}
			if status != http.StatusOK && !strings.Contains(host, ";") || status == http.StatusOK && (!strings.HasPrefix(policy, "default-src 'self'; ") || !strings.Contains(policy, wants) || strings.Contains(policy, "script-src")) {
				t.Errorf("%s for %s: status %d, policy %q", path, host, status, policy)
			}
		}
	}
	for _, path := range []string{"/live/other", "/other", "/live/../worker.go"} {
		if status, _ := asked(t, w, path, "localhost", ""); status != http.StatusNotFound && status != http.StatusTemporaryRedirect {
			t.Errorf("%s: status %d", path, status)
		}
	}
	for _, tt := range []struct {
		host, origin string
		status       int
	}{
		{"127.0.0.1:9464", "http://127.0.0.1:9464", http.StatusSwitchingProtocols},
		{"[::1]:9464", "http://[::1]:9464", http.StatusSwitchingProtocols},
		{"localhost:9464", "http://localhost:9464", http.StatusSwitchingProtocols},
		{"worker-a:9464", "http://worker-a:9464", http.StatusSwitchingProtocols},
		{"127.0.0.1:9464", "http://stranger.example", http.StatusForbidden},
		{"127.0.0.1:9464", "http://127.0.0.1:80", http.StatusForbidden},
		{"stranger.example:9464", "http://stranger.example:9464", http.StatusForbidden}, // a name made to mean this machine
	} {
		if status, _ := asked(t, w, "/live/nats", tt.host, tt.origin); status != tt.status {
			t.Errorf("%s of %s: status %d, want %d", tt.host, tt.origin, status, tt.status)
		}
	}
}

// TestLivePageWithoutSocket passes nothing on where the server takes no WebSocket, or
// the page has another server.
func TestLivePageWithoutSocket(t *testing.T) {
	t.Parallel()
	server, err := broker.StartServer(t.Context(), broker.ServerConfig{DataDir: t.TempDir(), WebSocketPort: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	w := start(t, nil, worker.Deps{Server: server}, func(c *worker.Config) { c.LiveURL = "wss://nats.example.org:8443" })
	if status, _ := asked(t, w, "/live/nats", "localhost", "http://localhost"); status != http.StatusNotFound {
		t.Errorf("status %d", status)
	}
	if _, header := asked(t, w, "/live/", "localhost", ""); !strings.Contains(header.Get("Content-Security-Policy"), "wss://nats.example.org:8443;") {
		t.Errorf("policy %q", header.Get("Content-Security-Policy"))
	}
}
