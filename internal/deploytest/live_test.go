package deploytest_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/broker"
)

// shell matches a variable of a compose file, with its default.
var shell = regexp.MustCompile(`\$\{[A-Z_]+:?-([^}]*)\}`)

// published returns the address on this machine of a port of a container, as the
// compose file has it unless somebody says otherwise.
func published(t *testing.T, ports []string, container string) string {
	t.Helper()
	for _, p := range ports {
		if address, ok := strings.CutSuffix(shell.ReplaceAllString(p, "$1"), ":"+container); ok {
			return address
		}
	}
	t.Fatalf("port %s is not published: %v", container, ports)
	return ""
}

// TestLivePage wants the live pages of the compose file's workers to be allowed
// where they look for NATS, and those of strangers not to be.
func TestLivePage(t *testing.T) {
	t.Parallel()
	var c compose
	decode(t, "docker-compose.yml", read(t, "docker-compose.yml"), &c)
	socket := published(t, c.Services["nats"].Ports, "8080")
	url := webSocket(t)
	for _, name := range []string{"worker-a", "worker-b"} {
		s := c.Services[name]
		if page := shell.ReplaceAllString(fmt.Sprint(s.Environment["CELLMQ_LIVE_URL"]), "$1"); page != "ws://"+socket {
			t.Errorf("%s: the page looks for NATS at %s, which is at ws://%s", name, page, socket)
		}
		address := published(t, s.Ports, "9464")
		_, port, _ := strings.Cut(address, ":")
		for _, host := range []string{address, "localhost:" + port} {
			if status := shaken(t, url, "http://"+host); status != http.StatusSwitchingProtocols {
				t.Errorf("%s: a page of %s gets status %d", name, host, status)
			}
		}
	}
	for _, origin := range []string{"http://example.org", "http://127.0.0.1:8000"} {
		if status := shaken(t, url, origin); status != http.StatusForbidden {
			t.Errorf("a page of %s gets status %d", origin, status)
		}
	}
	_, env := worked(t, build(t, "base"))
	if env["CELLMQ_LIVE_URL"] != "ws://127.0.0.1:8080" {
		t.Errorf("the manifest's page looks for NATS at %s", env["CELLMQ_LIVE_URL"])
	}
}

// webSocket starts a server with the WebSocket block of deploy/nats.conf, on a free
// port, and returns its URL.
func webSocket(t *testing.T) string {
	t.Helper()
	block := regexp.MustCompile(`(?s)\nwebsocket \{\n.*?\n\}\n`).Find(read(t, "deploy/nats.conf"))
	if !bytes.Contains(block, []byte(" port: 8080\n")) {
		t.Fatalf("deploy/nats.conf has no WebSocket on port 8080: %s", block)
	}
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, bytes.Replace(block, []byte(" port: 8080\n"), []byte(" port: -1\n"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := broker.StartServer(t.Context(), broker.ServerConfig{ConfigFile: file, Port: broker.PortNone, DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	return server.WebSocketURL()
}

// shaken returns the status of a WebSocket handshake of a page of this origin.
func shaken(t *testing.T, url, origin string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+strings.TrimPrefix(url, "ws://"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Origin": origin,
		"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
	} {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode
}
