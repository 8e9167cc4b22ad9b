package broker_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

// shown starts a worker that can be watched, and returns what ends it.
func shown(t *testing.T, conn *broker.Conn, name string, snapshot func(time.Time) *broker.Snapshot) (watched chan bool, stop func()) {
	t.Helper()
	watched = make(chan bool, 16)
	before := conn.NATS().NumSubscriptions()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- conn.Live(ctx, broker.LiveConfig{Worker: name, Snapshot: snapshot, Watched: func(yes bool) { watched <- yes }})
	}()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		done <- nil
	}
	t.Cleanup(stop)
	eventually(t, "it can be asked", func() bool { return conn.NATS().NumSubscriptions() > before })
	return watched, stop
}

func plainSnapshot(time.Time) *broker.Snapshot {
	return &broker.Snapshot{State: broker.LiveServing, Models: []broker.LiveModel{{Name: "m"}}}
}

// TestLive watches two workers, one of which ends.
func TestLive(t *testing.T) {
	t.Parallel()
	server := brokertest.Server(t)
	stops := map[string]func(){}
	for _, name := range []string{"w1", "w2"} {
		conn, err := broker.Connect(t.Context(), broker.Config{URL: server.URL()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.NATS().Close)
		_, stops[name] = shown(t, conn, name, plainSnapshot)
	}
	nc, err := broker.Dial(t.Context(), server.URL(), "viewer", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	seen := map[string]int{}
	stopped := false
	err = broker.WatchLive(ctx, nc, "infer", broker.LiveShortest, func(p broker.LivePayload) {
		s, err := broker.DecodeSnapshot(p.Payload)
		if err != nil || s.Worker != p.Worker {
			t.Errorf("%s: %+v, %v", p.Worker, s, err)
			return
		}
		seen[s.Worker]++
		switch {
		case s.State == broker.LiveStopped:
			stopped = stopped || s.Worker == "w1"
		case s.State != broker.LiveServing || s.Interval != 100 || len(s.Models) != 1:
			t.Errorf("snapshot %+v", s)
		}
		if seen["w1"] == 3 {
			go stops["w1"]()
		}
		if stopped && seen["w2"] > 3 {
			cancel()
		}
	})
	if err != nil || seen["w1"] < 3 || !stopped || seen["w2"] < 3 {
		t.Errorf("seen %v, w1 stopped: %v, %v", seen, stopped, err)
	}
}

// TestUnwatchedIsSilent makes no snapshot unless somebody asks, and stops some
// time after the last question.
func TestUnwatchedIsSilent(t *testing.T) {
	t.Parallel()
	server := brokertest.Server(t)
	conn, err := broker.Connect(t.Context(), broker.Config{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.NATS().Close)
	made := make(chan time.Time, 1024)
	watched, _ := shown(t, conn, "w1", func(now time.Time) *broker.Snapshot {
		made <- now
		return plainSnapshot(now)
	})
	if len(made) > 0 {
		t.Error("a snapshot that nobody asked for")
	}
	began := time.Now()
	// A flood of questions, some of them nonsense, of which one asks for the shortest interval.
	for i := range 2000 {
		payload := []string{"", `{"interval_ms":1}`, `{"interval_ms":-5}`, `{"interval_ms":1e400}`, strings.Repeat("x", 9000), "null"}[i%6]
		if err := conn.NATS().Publish("infer.watch", []byte(payload)); err != nil {
			t.Fatal(err)
		}
	}
	if yes := <-watched; !yes {
		t.Error("told that nobody watches")
	}
	if yes := <-watched; yes {
		t.Error("told twice that somebody watches")
	}
	lasted := time.Since(began)
	if lasted < broker.LiveLinger {
		t.Errorf("ended after %v", lasted)
	}
	n := len(made)
	if most := int(lasted/broker.LiveShortest) + 1; n < 2 || n > most {
		t.Errorf("%d snapshots in %v, want at most %d", n, lasted, most)
	}
	last := <-made
	for range n - 1 {
		next := <-made
		if gap := next.Sub(last); gap < broker.LiveShortest {
			t.Errorf("two snapshots within %v", gap)
		}
		last = next
	}
}

// TestLiveWithoutPermission has a server that permits nothing of it, as a
// configuration from before: the worker is not unready for that.
func TestLiveWithoutPermission(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "nats.conf")
	users := `authorization { users: [ { user: w, password: w, permissions { publish: ["$JS.API.INFO"], subscribe: ["_INBOX.>"] } } ] }`
	if err := os.WriteFile(file, []byte(users), 0o600); err != nil {
		t.Fatal(err)
	}
	server, err := broker.StartServer(t.Context(), broker.ServerConfig{DataDir: t.TempDir(), ConfigFile: file})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	conn, err := broker.Connect(t.Context(), broker.Config{URL: server.URL(), Options: []nats.Option{nats.UserInfo("w", "w")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.NATS().Close)
	shown(t, conn, "w1", plainSnapshot)
	eventually(t, "the subscription is refused", func() bool { return conn.NATS().LastError() != nil })
	if err := conn.NATS().Publish("infer.live.w1", nil); err != nil {
		t.Fatal(err)
	}
	if err := conn.NATS().Flush(); err != nil {
		t.Fatal(err)
	}
	if err := conn.Denied(); err != nil {
		t.Errorf("unready: %v", err)
	}
}

// TestBadSnapshots refuses what is out of bounds, and names the field.
func TestBadSnapshots(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 200)
	for name, tt := range map[string]struct{ payload, field string }{
		"nothing":        {"", "JSON"},
		"no object":      {"[1]", "array"},
		"large":          {`{"x":"` + strings.Repeat("x", 300_000) + `"}`, "bytes"},
		"version":        {`{"v":2}`, "v 2"},
		"worker":         {`{"v":1,"worker":"a b"}`, "worker"},
		"long worker":    {`{"v":1,"worker":"` + long + `"}`, "worker"},
		"escape":         {`{"v":1,"worker":"w","version":"\u001b[2J"}`, "version"},
		"new line":       {`{"v":1,"worker":"w","models":[{"name":"a\nb"}]}`, "models.name"},
		"right to left":  {`{"v":1,"worker":"w","models":[{"name":"a\u202eb"}]}`, "models.name"},
		"long name":      {`{"v":1,"worker":"w","models":[{"name":"` + long + `"}]}`, "models.name"},
		"negative":       {`{"v":1,"worker":"w","slots":-1}`, "slots"},
		"negative count": {`{"v":1,"worker":"w","tokens":-1}`, "tokens"},
		"not a number":   {`{"v":1,"worker":"w","tokens":NaN}`, "invalid"},
		"infinite":       {`{"v":1,"worker":"w","models":[{"running":1e999}]}`, "running"},
		"many models":    {`{"v":1,"worker":"w","models":[{}` + strings.Repeat(",{}", 40) + `]}`, "models"},
		"many buckets":   {`{"v":1,"worker":"w","models":[{"latency":{"total":{"buckets":[[1,1]` + strings.Repeat(",[1,1]", 120) + `]}}}]}`, "buckets"},
		"bucket":         {`{"v":1,"worker":"w","models":[{"latency":{"total":{"buckets":[[112,1]]}}}]}`, "buckets"},
		"model of step":  {`{"v":1,"worker":"w","recent":[{"m":0}]}`, "recent.m"},
		"cell of step":   {`{"v":1,"worker":"w","models":[{"cells":[{}]}],"recent":[{"c":1}]}`, "recent.c"},
		"slots of step":  {`{"v":1,"worker":"w","models":[{"cells":[{}]}],"recent":[{"slots":[0` + strings.Repeat(",1", 64) + `]}]}`, "recent.slots"},
		"outcome":        {`{"v":1,"worker":"w","models":[{"outcomes":{"\u0007":1}}]}`, "models.outcomes"},
	} {
		s, err := broker.DecodeSnapshot([]byte(tt.payload))
		if !errors.Is(err, broker.ErrBadSnapshot) || !strings.Contains(err.Error(), tt.field) || len(err.Error()) > 400 {
			t.Errorf("%s: %v, %v; want an error about %s", name, s, err, tt.field)
		}
	}
}

// FuzzDecodeSnapshot holds what was decoded to the bounds.
func FuzzDecodeSnapshot(f *testing.F) {
	f.Add([]byte(`{"v":1,"worker":"w","models":[{"name":"m","cells":[{"name":"c"}],"latency":{"total":{"buckets":[[3,4]]}}}],"recent":[{"slots":[1]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := broker.DecodeSnapshot(b)
		if err != nil {
			return
		}
		for _, step := range s.Recent {
			_ = s.Models[step.Model].Cells[step.Cell]
		}
		for _, m := range s.Models {
			if q := m.Latency.Total.Quantile(0.99); q < 0 || len(m.Name) > 128 || strings.ContainsAny(m.Name, "\x1b\n\r") {
				t.Errorf("%q, %v", m.Name, q)
			}
		}
	})
}

// TestLiveHistogram keeps durations to within a bucket, over the wire and merged.
func TestLiveHistogram(t *testing.T) {
	t.Parallel()
	counts := make([]uint32, broker.LiveBuckets)
	for i := 1; i <= 1000; i++ {
		counts[broker.LiveBucket(time.Duration(i)*time.Millisecond)]++
	}
	h := broker.NewLiveHistogram(counts)
	b, err := h.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var read, sum broker.LiveHistogram
	if err := read.UnmarshalJSON(b); err != nil {
		t.Fatal(err)
	}
	sum.Merge(read)
	sum.Merge(broker.LiveHistogram{})
	sum.Merge(h)
	if sum.Count() != 2000 || read.Count() != 1000 {
		t.Errorf("counts %d, %d", sum.Count(), read.Count())
	}
	for q, want := range map[float64]float64{-1: 1, 0.001: 1, 0.5: 500, 0.99: 990, 1: 1000, math.Inf(1): 1000} {
		got := float64(sum.Quantile(q)) / float64(time.Millisecond)
		if got < want*0.999 || got > want*1.2 {
			t.Errorf("quantile %v: %v ms, want about %v", q, got, want)
		}
	}
	for _, d := range []time.Duration{math.MinInt64, -1, 0, 1, math.MaxInt64} {
		if i := broker.LiveBucket(d); i < 0 || i >= broker.LiveBuckets {
			t.Errorf("%v is in bucket %d", d, i)
		}
	}
	if (broker.LiveHistogram{}).Quantile(0.5) != 0 {
		t.Error("nothing has a median")
	}
}
