package broker

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"time"
)

// TestStuckReaderStallsNobody sends more to a reader that reads nothing than the
// server keeps for it. By default the server would hold up whoever sends, and with
// it all other streams of that worker's connection.
func TestStuckReaderStallsNobody(t *testing.T) {
	t.Parallel()
	server, err := StartServer(t.Context(), ServerConfig{DataDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	stuck, err := net.Dial("tcp", strings.TrimPrefix(server.URL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stuck.Close() }) // the server may have closed it
	if _, err := stuck.Write([]byte("CONNECT {\"verbose\":false}\r\nSUB out 1\r\nPING\r\n")); err != nil {
		t.Fatal(err)
	}
	for r, line := bufio.NewReaderSize(stuck, 16), ""; line != "PONG\r\n"; {
		if line, err = r.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	nc, err := Dial(t.Context(), server.URL(), "producer", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	frame := make([]byte, 16<<10)
	for sent := 0; sent < 2*maxPending; sent += len(frame) {
		if err := nc.Publish("out", frame); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.FlushTimeout(30 * time.Second); err != nil {
		t.Fatal(err)
	}
	if n := server.srv.NumStalledClients(); n != 0 {
		t.Errorf("the producer was stalled %d times", n)
	}
}
