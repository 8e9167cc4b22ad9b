package worker_test

import (
	"strings"
	"testing"
)

// counters are the highest values that were seen of a worker's counters, by name and
// labels; the parts of histograms are counters too.
type counters struct {
	w    *started
	most map[string]float64
}

// look wants that no counter is lower than it ever was. One that is not there may
// come back.
func (c *counters) look(t *testing.T, when string) {
	t.Helper()
	text, kind := metrics(t, c.w), ""
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			_, kind, _ = strings.Cut(strings.TrimSpace(rest), " ")
			continue
		}
		name, n, ok := sample(line)
		if !ok || kind != "counter" && kind != "histogram" {
			continue
		}
		if n < c.most[name] {
			t.Errorf("%s: %s fell from %v to %v", when, name, c.most[name], n)
		}
		c.most[name] = max(c.most[name], n)
	}
}

// total sums what was seen of a counter.
func (c *counters) total(name string, labels ...string) float64 {
	return total(c.most, name, labels...)
}

// TestCountersNeverFall takes versions of a model in and out, among them two that
// clients know by the same name: whatever goes, no counter of the process is lower than it
// was, and none comes back lower.
func TestCountersNeverFall(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	w := startServing(t, server, nil)
	s := newShop(t, server)
	for version, text := range map[string]string{"one": "abc", "another": "axyz"} {
		s.push("m", version, spelling(t, "1", text)) // to clients both are 1
	}
	s.pushLetters("m", "2")
	c := newBuyer(t, connect(t, server), "me")
	seen := &counters{w: w, most: map[string]float64{}}
	asked := 0
	for range 2 {
		for _, version := range []string{"one", "another", "2"} {
			s.deploy("m", version)
			seen.look(t, version+" deployed")
			for range 3 {
				eventually(t, "the version answers", func() bool { return c.ask("req", "m", "a", 2).Final != nil })
				asked++
			}
			c.ask("rt", "own", "a", 2)
			seen.look(t, version+" asked")
		}
		eventually(t, "the first version has given way", func() bool { // a worker has two
			seen.look(t, "on the way out")
			return !strings.Contains(metrics(t, w), s.ref("m", "one").Digest)
		})
		undeploy(s, "m")
		seen.look(t, "undeployed")
	}
	if n := seen.total("cellmq_version_requests_total", `model="m"`, `outcome="ok"`); n < float64(asked) {
		t.Errorf("%v requests by version, %d were answered", n, asked)
	}
}

// undeploy takes a model out of service.
func undeploy(s *shop, model string) {
	s.t.Helper()
	d, err := s.deployment(model).Undeploy("a test", "operator")
	if err == nil {
		err = s.Write(s.t.Context(), d)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}
