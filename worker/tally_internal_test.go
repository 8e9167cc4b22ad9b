package worker

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/worker/internal/versions"
)

// TestTallyOfNames counts two versions of one name: the name has the sum, whichever
// of them are there, and each version what is its own.
func TestTallyOfNames(t *testing.T) {
	t.Parallel()
	c := newTally()
	a, b := versions.Key{Model: "m", Digest: "a"}, versions.Key{Model: "m", Digest: "b"}
	c.count(a, "1", string(broker.FinishStop))
	c.count(b, "1", string(broker.FinishLength))
	c.count(b, "1", string(broker.CodeInternal))
	c.count(b, "2", string(broker.FinishCancelled))
	for key, want := range map[versions.Key]endings{a: {ok: 1}, b: {ok: 1, failed: 1, other: 1}, {Model: "m", Digest: "c"}: {}} {
		if got := c.of(key); got != want {
			t.Errorf("%v: %+v, want %+v", key, got, want)
		}
	}
	for name, want := range map[versionLabels]endings{{"m", "1"}: {ok: 2, failed: 1}, {"m", "2"}: {other: 1}, {"n", "1"}: {}} {
		if got := c.named(name); got != want {
			t.Errorf("%v: %+v, want %+v", name, got, want)
		}
	}
}

// TestTallyIsBounded counts more versions than are kept: those that are counted again
// and again stay.
func TestTallyIsBounded(t *testing.T) {
	t.Parallel()
	c := newTally()
	steady := versions.Key{Model: "m", Digest: "steady"}
	const more = 2*tallied + 100
	for i := range more {
		c.count(versions.Key{Model: "m", Digest: strconv.Itoa(i)}, strconv.Itoa(i), string(broker.FinishStop))
		c.count(steady, "steady", string(broker.FinishStop))
	}
	if len(c.versions) != tallied || len(c.names) != tallied {
		t.Errorf("%d versions and %d names are kept", len(c.versions), len(c.names))
	}
	if got := c.of(steady); got.ok != more {
		t.Errorf("the steady one has %+v", got)
	}
	if got := c.named(versionLabels{"m", "steady"}); got.ok != more {
		t.Errorf("the steady name has %+v", got)
	}
	if got := c.of(versions.Key{Model: "m", Digest: "0"}); got != (endings{}) {
		t.Errorf("the oldest has %+v", got)
	}
}

// TestDeployedNamesAreBounded counts models that only have names: so many have series of
// their own, and nothing is lost.
func TestDeployedNamesAreBounded(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	m := newModelCounts(reg)
	const loads = deployedNames + 500
	for range 2 {
		for i := range loads {
			m.loaded(fmt.Sprint("m", i), 1)
		}
	}
	if n := testutil.CollectAndCount(m.loads); n != deployedNames+1 {
		t.Errorf("%d series", n)
	}
	if n := testutil.ToFloat64(m.loads.WithLabelValues(otherModels, "ok")); n != 2*(loads-deployedNames) {
		t.Errorf("%v loads of others", n)
	}
	if n := testutil.ToFloat64(m.loads.WithLabelValues("m0", "ok")); n != 2 {
		t.Errorf("%v loads of the first", n)
	}
}
