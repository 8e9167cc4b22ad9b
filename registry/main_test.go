package registry_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/registry"
)

// pusherVariable makes a process one that pushes a directory; its value is a pusher.
const pusherVariable = "REGISTRY_PUSHER"

// pusher is what a process pushes where.
type pusher struct {
	URL, Dir, Model, Version string
	Stale                    time.Duration
}

func TestMain(m *testing.M) {
	if text := os.Getenv(pusherVariable); text != "" {
		brokertest.ExitWithTest()
		if err := pushAs(text); err != nil {
			fmt.Fprintln(os.Stderr, "pusher:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// pushAs says each step, and at the end by how much its memory grew, in KiB.
func pushAs(text string) error {
	var p pusher
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	nc, err := nats.Connect(p.URL)
	if err != nil {
		return err
	}
	defer nc.Close()
	r, err := registry.New(registry.Config{Conn: nc, Stale: p.Stale})
	if err != nil {
		return err
	}
	before, err := peakMemory()
	if err != nil {
		return err
	}
	n := 0
	_, err = r.Push(context.Background(), os.DirFS(p.Dir), version(p.Model, p.Version), func(p registry.Progress) {
		_, _ = fmt.Fprintf(os.Stdout, "step %d: %d of %d, skipped %d\n", n, p.Done, p.Total, p.Skipped)
		n++
	})
	if err != nil {
		return err
	}
	after, err := peakMemory()
	_, _ = fmt.Fprintf(os.Stdout, "grown %d\n", after-before)
	return err
}

// peakMemory of this process in KiB, 0 where the system does not say.
func peakMemory() (int, error) {
	b, err := os.ReadFile("/proc/self/status")
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	_, text, _ := strings.Cut(string(b), "VmHWM:")
	var kib int
	_, err = fmt.Sscan(text, &kib)
	return kib, err
}
