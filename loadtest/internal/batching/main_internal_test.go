package batching

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tiny is the hidden size of networks in tests.
const tiny = 4

func tinyNetwork(t *testing.T, name string) *network {
	t.Helper()
	n, err := newNetwork(name, tiny, 1)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func tinyCellular(t *testing.T, n *network, shape cellrt.Shape, rows int) *cellular {
	t.Helper()
	s, err := newCellular(n, cpu.New(cpu.Config{SplitWork: 1}), shape, rows)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func tinyPadded(t *testing.T, n *network, shape cellrt.Shape, rows, width int, b Baseline) *padded {
	t.Helper()
	s, err := newPadded(n, cpu.New(cpu.Config{SplitWork: 1}), shape, rows, width, b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// serve runs a server until the test ends.
func serve(t *testing.T, run func(context.Context) error) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// serveTrace runs a trace on a server that is serving.
func serveTrace(t *testing.T, s server, trace []request) *trial {
	t.Helper()
	tr := newTrial(trace)
	if err := tr.run(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return tr
}

func draw(n *network, count int) []request {
	return drawRequests(n, rand.New(rand.NewPCG(7, 7)), count, 0)
}

// read returns a request of a network that only reads.
func read(length int) *request { return &request{source: make([]int32, length)} }

func lengths(batch []*answer) []int {
	var l []int
	for _, a := range batch {
		l = append(l, len(a.request.source))
	}
	return slices.Clip(l)
}
