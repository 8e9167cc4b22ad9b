package cli

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/registry"
)

// interrupting calls stop when a file is opened for the nth time.
type interrupting struct {
	fs.FS
	opened atomic.Int64
	n      int64
	stop   context.CancelFunc
}

// Open opens a file of the directory.
func (i *interrupting) Open(name string) (fs.File, error) {
	if name == "weights" && i.opened.Add(1) == i.n {
		i.stop()
	}
	return i.FS.Open(name)
}

// TestPushInterrupted interrupts a push between two parts: it says how much is
// stored, and the next one sends the rest.
func TestPushInterrupted(t *testing.T) {
	t.Parallel()
	conn := brokertest.Connect(t, brokertest.Server(t), broker.Config{}).NATS()
	r, err := registry.New(registry.Config{Conn: conn})
	if err != nil {
		t.Fatal(err)
	}
	const parts = 4
	weights := make([]byte, parts*registry.PartBytes)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(weights) // never fails
	dir := fstest.MapFS{"weights": {Data: weights}}
	m := registry.Manifest{Model: "m", Version: "1"}
	ctx, stop := context.WithCancel(t.Context())
	var out, said bytes.Buffer
	s := streams{out: &out, err: &said}
	o := &modelOptions{}
	// To list it, to hash it, then for each part, two at a time: the third one of those waits for another to be stored.
	err = o.push(ctx, r, &interrupting{FS: dir, n: 5, stop: stop}, m, s)
	text := said.String()
	if !errors.Is(err, context.Canceled) || !strings.Contains(text, "interrupted, push of m@1: ") ||
		!strings.Contains(text, " of 32.0 MiB are stored, and pushing it again goes on from there") || out.Len() != 0 {
		t.Errorf("%v, %q, %q", err, text, out.String())
	}
	if err := o.push(t.Context(), r, dir, m, s); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); !strings.Contains(got, "m@1 pushed: 32.0 MiB, ") || strings.Contains(got, "32.0 MiB of them sent") {
		t.Errorf("%q", got)
	}
}
