package worker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/worker"
)

// smallDisk is a disk of some MiB that can be filled.
type smallDisk struct{ dir string }

func newSmallDisk(t *testing.T) *smallDisk {
	t.Helper()
	d := &smallDisk{filepath.Join(t.TempDir(), "disk")}
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", d.dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("mounting a small disk takes root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(d.dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d
}

func (d *smallDisk) filler() string { return filepath.Join(d.dir, "filler") }

// fill leaves no block free.
func (d *smallDisk) fill(t *testing.T) {
	t.Helper()
	f, err := os.Create(d.filler())
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the disk is filled until %v", err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func (d *smallDisk) free(t *testing.T) {
	t.Helper()
	if err := os.Remove(d.filler()); err != nil {
		t.Error(err)
	}
}

// TestFullDisk fills the disk of a server, the worker's own or another: the
// worker is not ready, and says why. With space again it recovers, the embedded
// server by itself and the other when it is started again; what was accepted
// before is answered.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for _, embedded := range []bool{true, false} {
		t.Run(fmt.Sprintf("embedded %v", embedded), func(t *testing.T) {
			t.Parallel()
			testFullDisk(t, embedded)
		})
	}
}

func testFullDisk(t *testing.T, embedded bool) {
	t.Helper()
	disk, port := newSmallDisk(t), freePort(t)
	url := fmt.Sprintf("nats://127.0.0.1:%d", port)
	config := broker.ServerConfig{DataDir: filepath.Join(disk.dir, "data"), Port: port}
	var server *broker.Server
	restart := func() {
		var err error
		if server, err = broker.StartServer(context.WithoutCancel(t.Context()), config); err != nil {
			t.Fatal(err)
		}
	}
	if !embedded {
		restart()
		t.Cleanup(func() { server.Shutdown() })
	}
	w := start(t, nil, worker.Deps{Models: []*models.Model{endless(t, "endless")}}, func(c *worker.Config) {
		c.DataDir, c.EmbeddedPort, c.AckWait = config.DataDir, port, time.Second
		if !embedded {
			c.NatsURL = url
		}
	})
	nc, err := broker.Dial(t.Context(), url, "client", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	client, err := broker.NewClient(nc, broker.ClientConfig{Name: "me"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }() // with its connection
	tokens := 4
	request := func(id string) (broker.Frame, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		s, err := client.Request(ctx, "endless", broker.RequestOptions{
			ID: id, Input: broker.Input{IsIDs: true, IDs: []int32{3}}, Params: broker.Params{MaxTokens: &tokens},
		})
		if err != nil {
			return broker.Frame{}, err
		}
		return s.Final()
	}
	if f, err := request("before0001"); err != nil || len(f.Tokens) != tokens {
		t.Fatalf("before: %+v, %v", f, err)
	}
	disk.fill(t)
	eventually(t, "the worker is not ready and says why", func() bool {
		status, body := get(t, w, "/readyz")
		return status == 503 && strings.Contains(body, "stores nothing")
	})
	if n := metric(t, w, "cellmq_stores_failing"); n != 1 {
		t.Errorf("cellmq_stores_failing %v", n)
	}
	disk.free(t)
	if !embedded {
		server.Shutdown()
		restart()
	}
	eventually(t, "the worker is ready again", func() bool { status, _ := get(t, w, "/readyz"); return status == 200 })
	if f, err := request("after00001"); err != nil || len(f.Tokens) != tokens {
		t.Errorf("after: %+v, %v", f, err)
	}
	queued(t, nc, 0)
}
