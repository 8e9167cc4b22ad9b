package worker_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models/safetensors"
	"github.com/cellmq/cellmq/registry"
	"github.com/cellmq/cellmq/worker"
)

// pair starts two workers of one server, and deploys version 1 of a speller.
func pair(t *testing.T, server *broker.Server, s *shop, versions ...string) {
	t.Helper()
	for _, name := range []string{"w1", "w2"} {
		startServing(t, server, func(c *worker.Config) { c.Name = name })
	}
	s.pushLetters("m", append(versions, "1")...)
	s.deploy("m", "1")
	s.holds("m")
}

// holds waits until the rule of a deployment has taken effect, and returns it.
func (s *shop) holds(model string) registry.Rule {
	s.t.Helper()
	rule := s.deployment(model).Rule()
	<-time.After(time.Until(rule.From) + 100*time.Millisecond)
	return rule
}

// canary gives a version a share, and waits until the rule is in effect.
func (s *shop) canary(model, version string, share int) registry.Rule {
	s.t.Helper()
	if d := s.deployment(model); d.Phase == registry.Steady {
		s.begin(model, version, registry.Options{Canary: share})
	} else if next, err := d.Promote(share); err != nil || s.Write(s.t.Context(), next) != nil {
		s.t.Fatalf("promote: %v", err)
	}
	eventually(s.t, "the canary begins", func() bool {
		d := s.deployment(model)
		return d.Phase == registry.Canary && d.Share == share
	})
	return s.holds(model)
}

// TestCanaryOfTwoWorkers gives a version a tenth of the requests, and then half:
// whichever of two workers a request reaches, and on which path, its id decides.
func TestCanaryOfTwoWorkers(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	s := newShop(t, server)
	pair(t, server, s, "2")
	c := newBuyer(t, connect(t, server), "me")
	workers := map[string]bool{}
	served := map[string]int{}
	const n = 300
	rule := s.canary("m", "2", registry.Whole/10)
	for i := range n {
		id := fmt.Sprintf("request%05d", i)
		f := c.askAs(id, "req", "m", "a", 4)
		workers[c.worker] = true
		again := c.askAs(id, "rt", "m", "a", 4)
		workers[c.worker] = true
		want := rule.Choose("m", id).Version
		if f.Version != want || again.Version != want || f.Digest != s.ref("m", want).Digest {
			t.Errorf("%s: version %s, realtime %s, want %s", id, f.Version, again.Version, want)
		}
		served[f.Version]++
	}
	if len(workers) != 2 {
		t.Errorf("workers %v", workers)
	}
	if got := served["2"]; got < n/10-21 || got > n/10+21 { // 4 standard deviations
		t.Errorf("%d of %d requests in a canary of a tenth", got, n)
	}
	half := s.canary("m", "2", registry.Whole/2)
	for i := range n / 4 {
		id := fmt.Sprintf("request%05d", i)
		f := c.askAs(id, "rt", "m", "a", 4)
		want := half.Choose("m", id).Version
		if f.Version != want || rule.Choose("m", id).Version == "2" && f.Version != "2" {
			t.Errorf("%s: version %s of half, want %s", id, f.Version, want)
		}
	}
}

// TestVersionHeader asks for versions by name while one of them has no share.
func TestVersionHeader(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	s := newShop(t, server)
	startServing(t, server, nil)
	s.pushLetters("m", "1", "2")
	s.deploy("m", "1")
	s.canary("m", "2", 0)
	c := newBuyer(t, connect(t, server), "me")
	for i, path := range []string{"req", "rt"} {
		for _, tc := range []struct{ header, version string }{{"", "1"}, {"1", "1"}, {"2", "2"}, {"3", ""}} {
			id := fmt.Sprintf("request%d%d%s", i, len(tc.header), tc.header)
			f := c.askAs(id, path, "m", "a", 4, broker.HeaderVersion, tc.header)
			switch {
			case f.Version != tc.version:
				t.Errorf("%s %q is served in version %q, %v", path, tc.header, f.Version, f.Error)
			case tc.version == "" && (f.Error.Code != broker.CodeUnknownVersion || f.Error.Retryable ||
				!strings.Contains(f.Error.Message, `"1", "2"`) || !strings.Contains(f.Error.Message, `"3"`)):
				t.Errorf("%s %q: %+v", path, tc.header, f.Error)
			}
		}
	}
}

// TestRealtimeDuringUpgrade asks one worker all the time while a version is loaded,
// gets a share, then all, and is taken back: there is always an answer, and an id
// that is on the new version's side stays there as long as the share grows.
func TestRealtimeDuringUpgrade(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	s := newShop(t, server)
	startServing(t, server, nil)
	s.pushLetters("m", "1", "2")
	s.deploy("m", "1")
	s.holds("m")
	nc := connect(t, server)
	probe := newBuyer(t, nc, "probe")
	eventually(t, "version 1 serves", func() bool { return probe.ask("rt", "m", "a", 1).Final != nil })
	stop, over := make(chan struct{}), make(chan struct{})
	taken := make(chan struct{}) // closed when the version is taken back
	asked := map[string]int{}
	go func() {
		defer close(over)
		c := newBuyer(t, nc, "me")
		seen := map[string]string{}
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			id := fmt.Sprintf("request%05d", i%40)
			f := c.askAs(id, "rt", "m", "a", 6)
			text := letters[f.Version]
			if f.Final == nil || f.Text != strings.Repeat(text[1:]+text[:1], 6)[:6] {
				t.Errorf("%s: version %q, %q, %v", id, f.Version, f.Text, f.Error)
			}
			select {
			case <-taken:
			default:
				if seen[id] > f.Version {
					t.Errorf("%s: version %s after %s", id, f.Version, seen[id])
				}
			}
			seen[id] = f.Version
			asked[f.Version]++
		}
	}()
	for _, share := range []int{registry.Whole / 5, registry.Whole / 2} {
		s.canary("m", "2", share)
	}
	next, err := s.deployment("m").Promote(registry.Whole)
	if err != nil || s.Write(t.Context(), next) != nil {
		t.Fatalf("promote: %v", err)
	}
	eventually(t, "version 2 has all", func() bool { return s.deployment("m").Active == s.ref("m", "2") })
	s.holds("m")
	close(taken)
	s.deploy("m", "1")
	s.holds("m")
	close(stop)
	<-over
	t.Logf("answers by version: %v", asked)
	if asked["1"] == 0 || asked["2"] == 0 || len(asked) != 2 {
		t.Errorf("answers by version: %v", asked)
	}
}

// poisoned is a speller whose output is not a number once it has read a q, and that
// is faultless otherwise, its golden output included.
func poisoned(t *testing.T, version string) fstest.MapFS {
	t.Helper()
	files := spelling(t, version, letters[version])
	config, tensors := spellerParts(letters[version]+"qr", version)
	units := len(letters[version]) + 2
	embed, out := tensors[0].Data, tensors[1].Data
	if tensors[0].Name != "embed.weight" || tensors[1].Name != "out.weight" {
		t.Fatalf("%s, %s", tensors[0].Name, tensors[1].Name)
	}
	for _, unit := range []int{units - 3, units - 2, units - 1} { // the last letter that it spells, q and r
		for b := range 256 {
			out[b*units+unit] = 0
		}
	}
	out[int('a')*units+units-3] = 20
	for _, unit := range []int{units - 2, units - 1} {
		embed[int('q')*units+unit] = 1
		out[int('b')*units+unit] = 3e38 // together they are infinite
	}
	var file bytes.Buffer
	if err := safetensors.Write(&file, tensors, nil); err != nil {
		t.Fatal(err)
	}
	golden := files["golden.jsonl"].Data
	golden = append(golden[:bytes.LastIndex(golden, []byte(`,"weights_sha256"`))], "}\n"...)
	return fstest.MapFS{
		"config.json": {Data: []byte(config)}, "model.safetensors": {Data: file.Bytes()}, "golden.jsonl": {Data: golden},
	}
}

// TestErrorsBringTheOldVersionBack gives half of the requests to a version that
// passes its golden outputs and fails on others: workers count that, one of them ends
// the deployment, and both go back.
func TestErrorsBringTheOldVersionBack(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	s := newShop(t, server)
	pair(t, server, s)
	s.push("m", "2", poisoned(t, "2"))
	s.canary("m", "2", registry.Whole/2)
	c := newBuyer(t, connect(t, server), "me")
	var failed time.Time
	errs := 0
	eventually(t, "the deployment ends", func() bool {
		for range 10 {
			f := c.ask("req", "m", "q", 4)
			if f.Error == nil {
				continue
			}
			if errs++; f.Error.Code != broker.CodeNumericalError {
				t.Fatalf("%+v", f.Error)
			}
			if failed.IsZero() {
				failed = time.Now()
			}
		}
		return s.deployment("m").Phase == registry.Steady
	})
	d := s.deployment("m")
	t.Logf("%d requests failed; ended %v after the first: %s", errs, d.Stored.Sub(failed), d.Reason)
	if d.Active != s.ref("m", "1") || !d.Refuses(s.ref("m", "2")) || !strings.Contains(d.Reason, "requests failed") {
		t.Errorf("active %v, refused %v, reason %q", d.Active, d.Refused, d.Reason)
	}
	workers := map[string]bool{}
	good := 0
	eventually(t, "both workers are back", func() bool {
		f := c.ask("req", "m", "q", 4)
		if f.Version != "1" {
			good, workers = 0, map[string]bool{}
			return false
		}
		good++
		workers[c.worker] = true
		return good >= 30 && len(workers) == 2
	})
	if v := s.reported("m", "2", "draining"); v.Failed == 0 || v.Failed > v.Ended {
		t.Errorf("report %+v", v)
	}
}

// TestPinIsWrittenBeforeTheFirstFrame begins a request on another version than the
// one that served when it was published: that is written down before its client
// hears of it, and dropped when it has its answer. Nobody pays for others.
func TestPinIsWrittenBeforeTheFirstFrame(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	s := newShop(t, server)
	s.pushLetters("m", "1")
	conn := brokerConn(t, server)
	if err := conn.EnsureStreams(t.Context(), []string{"m"}); err != nil {
		t.Fatal(err)
	}
	nc := connect(t, server)
	all := subscribe(t, nc, "infer.>")
	publish(t, nc, "infer.req.m.std.me", "", []byte(`{"input": "a", "max_tokens": 4}`), "Nats-Msg-Id", "request01")
	s.flip("m", "1", true)
	w := startServing(t, server, nil)
	if order := until(t, all, "request01"); order != "state "+s.ref("m", "1").Digest+", accepted, token, final" {
		t.Errorf("on the wire: %s", order)
	}
	eventually(t, "the pin is dropped", func() bool {
		_, err := conn.State(t.Context(), "me", "request01")
		return errors.Is(err, broker.ErrNotStored)
	})
	if n := metric(t, w, "cellmq_pinned_requests_total"); n != 1 {
		t.Errorf("%v requests pinned", n)
	}
	s.holds("m")
	publish(t, nc, "infer.req.m.std.me", "", []byte(`{"input": "a", "max_tokens": 4}`), "Nats-Msg-Id", "request02")
	if order := until(t, all, "request02"); !strings.HasPrefix(order, "accepted, token") {
		t.Errorf("on the wire: %s", order)
	}
	// Without a registry nobody knows the rule.
	for _, stream := range []string{"KV_CELLMQ_MODELS", "KV_CELLMQ_WORKERS"} {
		if _, err := nc.Request("$JS.API.STREAM.DELETE."+stream, nil, patience); err != nil {
			t.Fatal(err)
		}
	}
	i := 0
	eventually(t, "requests are pinned", func() bool {
		i++
		id := fmt.Sprintf("request1%d", i)
		publish(t, nc, "infer.req.m.std.me", "", []byte(`{"input": "a", "max_tokens": 4}`), "Nats-Msg-Id", id)
		return strings.HasPrefix(until(t, all, id), "state "+s.ref("m", "1").Digest)
	})
}

// until reads what is published of a request up to its final, and says what it was
// in order: states with their digest, and kinds of frames.
func until(t *testing.T, all *nats.Subscription, id string) string {
	t.Helper()
	var order []string
	for {
		m, err := all.NextMsg(patience)
		if err != nil {
			t.Fatalf("after %v: %v", order, err)
		}
		switch {
		case !strings.HasSuffix(m.Subject, "."+id):
		case strings.HasPrefix(m.Subject, "infer.state."):
			order = append(order, "state "+m.Header.Get(broker.HeaderDigest))
		case strings.HasPrefix(m.Subject, "infer.out."):
			f, err := broker.DecodeFrame(m.Data)
			if err != nil {
				t.Fatal(err)
			}
			if kind := string(f.Type); len(order) == 0 || order[len(order)-1] != kind {
				order = append(order, kind)
			}
			if f.Type.Terminal() {
				return strings.Join(order, ", ")
			}
		}
	}
}
