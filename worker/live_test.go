package worker_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/worker"
)

// TestWatched watches a worker under load: its figures are those of the requests,
// nothing of what these say gets out, and the last snapshot says that it has stopped.
func TestWatched(t *testing.T) {
	t.Parallel()
	const secret, client, requests = "zanzibar", "somebody", 12
	server := brokertest.Server(t)
	w := start(t, server, worker.Deps{Version: "1.2.3"}, func(c *worker.Config) { c.Name, c.MaxRows = "w1", 4 })
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out."+client+".*")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var first, last *broker.Snapshot
	var largest int
	asked, ended := false, make(chan struct{})
	err := broker.WatchLive(ctx, nc, "infer", broker.LiveShortest, func(p broker.LivePayload) {
		s, err := broker.DecodeSnapshot(p.Payload)
		if err != nil {
			t.Error(err)
			return
		}
		largest = max(largest, len(p.Payload))
		if text := string(p.Payload); strings.Contains(text, secret) || strings.Contains(text, client) {
			t.Errorf("a snapshot has what a client sent: %s", text)
		}
		switch {
		case s.State == broker.LiveStopped:
			cancel()
			return
		case last != nil && s.State == broker.LiveDraining: // what follows the stop below
			return
		}
		if first == nil {
			first = s
		}
		last = s
		if !asked {
			asked = true
			for range requests {
				publish(t, nc, "infer.req.g2p-en.std."+client, "", []byte(secret))
			}
			go func() {
				defer close(ended)
				for n := 0; n < requests; {
					if f := nextFrame(t, out); f.Type.Terminal() {
						n++
					}
				}
			}()
		}
		select {
		case <-ended:
			if finished(s) == requests && s.Models[0].Queued != nil {
				w.stop()
			}
		default:
		}
	})
	if err != nil || ctx.Err() == nil || last == nil || finished(last) != requests {
		t.Fatalf("last %+v, %v", last, err)
	}
	checkWatched(t, first, last, requests)
	if largest > 16<<10 {
		t.Errorf("a snapshot has %d bytes", largest)
	}
	if s := w.Stats(); last.Steps != s.Steps || last.Rows != s.Rows || last.Tokens != s.Tokens {
		t.Errorf("steps %d, rows %d, tokens %d; the step loop has %+v", last.Steps, last.Rows, last.Tokens, s)
	}
}

// checkWatched compares the figures of a worker that served so many equal requests.
func checkWatched(t *testing.T, first, last *broker.Snapshot, requests uint64) {
	t.Helper()
	if last.Worker != "w1" || last.Version != "1.2.3" || last.State != broker.LiveServing || last.ISA == "" || last.Slots != 16 || last.MemoryBytes == 0 {
		t.Errorf("worker %+v", last)
	}
	if last.Uptime < first.Uptime || last.Running != 0 {
		t.Errorf("uptime %d after %d, %d running", last.Uptime, first.Uptime, last.Running)
	}
	m := last.Models[0]
	if len(last.Models) != 1 || m.Name != "g2p-en" || m.Outcomes["stop"] != requests || m.Tokens == 0 || m.Tokens%requests != 0 ||
		len(m.Versions) != 1 || m.Versions[0].State != "live" || m.Versions[0].Bytes == 0 {
		t.Errorf("model %s, versions %+v, outcomes %v, %d tokens", m.Name, m.Versions, m.Outcomes, m.Tokens)
	}
	for name, h := range map[string]broker.LiveHistogram{
		"broker": m.Latency.Broker, "queue": m.Latency.Queue, "first token": m.Latency.FirstToken,
		"inter token": m.Latency.InterToken, "total": m.Latency.Total,
	} {
		if h.Count() != requests {
			t.Errorf("%d requests have a time: %s", h.Count(), name)
		}
	}
	if q := m.Latency.Total.Quantile(0.99); q <= m.Latency.Queue.Quantile(0.5) || q > patience {
		t.Errorf("total %v", q)
	}
	var steps, rows, reasons uint64
	full := false
	for _, c := range m.Cells {
		steps, rows = steps+c.Steps, rows+c.Rows
		for _, n := range c.Reasons {
			reasons += n
		}
		full = full || len(c.RowsLog2) > 1
		if c.MaxRows != 4 || len(c.RowsLog2) > 3 {
			t.Errorf("cell %+v, want at most 4 rows", c)
		}
	}
	if steps != last.Steps || rows != last.Rows || reasons != steps || !full {
		t.Errorf("cells have %d steps, %d reasons and %d rows, some of several: %v; in all %d and %d", steps, reasons, rows, full, last.Steps, last.Rows)
	}
	if len(last.Recent) == 0 || !slices.IsSortedFunc(last.Recent, func(a, b broker.LiveStep) int { return int(a.Number) - int(b.Number) }) {
		t.Errorf("recent steps %+v", last.Recent)
	}
	if x := last.Executors; len(x) != 1 || x[0].Threads != 1 || x[0].BusyUS == 0 || x[0].Model != "g2p-en" || x[0].Cell == "" {
		t.Errorf("executors %+v", x)
	}
}

func finished(s *broker.Snapshot) (n uint64) {
	for _, m := range s.Models {
		for _, c := range m.Outcomes {
			n += c
		}
	}
	return n
}

// TestUnwatchedWorkerRecordsNoSteps keeps a worker that nobody watches from counting
// what only a viewer sees.
func TestUnwatchedWorkerRecordsNoSteps(t *testing.T) {
	t.Parallel()
	server := brokertest.Server(t)
	start(t, server, worker.Deps{}, func(c *worker.Config) { c.Name = "w1" })
	nc := connect(t, server)
	out := subscribe(t, nc, "infer.out.me.*")
	live := subscribe(t, nc, "infer.live.*")
	publish(t, nc, "infer.rt.g2p-en.me", "infer.out.me.abcdefgh", []byte("word"))
	untilTerminal(t, out)
	if m, err := live.NextMsg(50 * time.Millisecond); err == nil {
		t.Errorf("nobody asked for %s", m.Data)
	}
	publish(t, nc, "infer.watch", "", nil)
	m, err := live.NextMsg(patience)
	if err != nil {
		t.Fatal(err)
	}
	s, err := broker.DecodeSnapshot(m.Data)
	if err != nil || len(s.Recent) != 0 || s.Steps == 0 {
		t.Errorf("%+v, %v", s, err)
	}
}
