//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker/brokertest"
)

// The upgrades.
const (
	upgradeHidden = 160
	upgradePace   = time.Millisecond // so that saturation does not depend on what else the machine does
	upgradeAsks   = 60               // different requests
	upgradeWidth  = 24               // requests at once that saturate the worker
	upgradeShare  = 0.6              // of saturation
	upgradeFreed  = 4                // after so many, the next one finds the old version gone
)

// TestTwentyUpgrades goes back and forth between two versions under a constant load
// of 60 % of saturation. No request fails, each answer is to the bit that of the
// version whose digest it names, and afterwards the worker holds what it held.
func TestTwentyUpgrades(t *testing.T) {
	t.Parallel()
	upgrades, calmTime, each := 4, 5*time.Second, 2*time.Second
	if *full {
		upgrades, calmTime, each = 20, 20*time.Second, 5*time.Second
	}
	server := brokertest.Server(t)
	s := newShop(t, server.URL())
	calm := map[string][]*outcome{} // by version
	digests := map[string]string{}
	var rate float64
	for i, version := range []string{"1", "2"} {
		dir := s.make("m", version, upgradeHidden, uint64(i+1), false)
		calm[version], rate = calmVersion(t, filepath.Dir(dir))
		s.command("model", "push", dir)
	}
	w := newMember(t, "w1", server.URL(), upgradePace, 1, "CELLMQ_MODELS=listops,m", "CELLMQ_CACHE_DIR="+t.TempDir(), "CELLMQ_PROFILE=200ms")
	s.command("model", "deploy", "m@1", "--watch", "0")
	v := s.show("m")
	for version := range calm {
		digests[v.digest(version)] = version
	}
	before, held := settled(t, w), holdings(t, w)
	rate *= upgradeShare
	l := startLoad(t, server.URL(), rate)
	wait(t.Context(), calmTime)
	for i := range upgrades {
		l.phase("during")
		s.command("model", "deploy", fmt.Sprint("m@", 2-i%2), "--watch", "0")
		if i%upgradeFreed == upgradeFreed-1 && i < upgrades-1 {
			eventually(t, "the old version is freed", func(context.Context) error { return freed(s, "m") })
		}
		l.phase("between")
		wait(t.Context(), each)
	}
	got := l.stop()
	counts := map[string]int{}
	for _, one := range got {
		version, known := digests[one.final.Digest]
		err := one.check(one.mode)
		if err == nil && (!known || one.final.Version != version) {
			err = fmt.Errorf("version %q, digest %q", one.final.Version, one.final.Digest)
		}
		if err == nil {
			if diff := one.differs(calm[version][one.ask]); diff != "" {
				err = errors.New(diff)
			}
		}
		if err != nil {
			t.Errorf("%s: %v", one.id, err)
		}
		counts[version]++
	}
	if len(counts) != 2 || counts["1"] == 0 || counts["2"] == 0 {
		t.Errorf("requests by version: %v", counts)
	}
	t.Logf("%d upgrades, %.0f requests/s, %d requests by version %v", upgrades, rate, len(got), counts)
	l.latencies(t)
	eventually(t, "the old version is freed", func(context.Context) error { return freed(s, "m") })
	checkWorker(t, w, before)
	eventually(t, "memory of models is back", func(context.Context) error {
		if now := holdings(t, w); now != held {
			return fmt.Errorf("%+v before, %+v now", held, now)
		}
		return nil
	})
	t.Logf("held: %+v", held)
}

// calmVersion has a worker of its own, that knows no registry, answer all requests
// of the load, and says how many it does in a second.
func calmVersion(t *testing.T, dirs string) (calm []*outcome, rate float64) {
	t.Helper()
	server := brokertest.Server(t)
	w := newMember(t, "calm", server.URL(), upgradePace, 1, "CELLMQ_MODELS=m", "CELLMQ_MODEL_DIRS="+dirs, "CELLMQ_REGISTRY=false")
	c := dial(t, server.URL(), "calm")
	const rounds = 5
	all := make([]*outcome, rounds*upgradeAsks)
	room := make(chan struct{}, upgradeWidth)
	start := time.Now()
	var sent sync.WaitGroup
	for i := range all {
		room <- struct{}{}
		sent.Go(func() {
			a := randomAsk("m", fmt.Sprintf("calm%08d", i), i%upgradeAsks)
			all[i] = a.perform(t.Context(), c)
			if err := all[i].check(a.options.Mode); err != nil {
				t.Errorf("calm run: %v", err)
			}
			<-room
		})
	}
	sent.Wait()
	rate = float64(len(all)) / time.Since(start).Seconds()
	if t.Failed() {
		t.FailNow()
	}
	if err := w.kill(); err != nil {
		t.Error(err)
	}
	return all[:upgradeAsks], rate
}

// holding is what a worker has of models.
type holding struct {
	memory float64 // of cellmq_model_memory_bytes
	mapped int     // files of weights in its address space
}

func holdings(t *testing.T, w *member) holding {
	t.Helper()
	g, err := w.gauges(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", w.process.PID()))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return holding{g["cellmq_model_memory_bytes"], strings.Count(string(maps), "model.safetensors")}
}

// freed says whether workers have the active version and no other.
func freed(s *shop, model string) error {
	v := s.show(model)
	if v.Deployment == nil || len(v.Workers) == 0 {
		return errors.New("no worker reports it")
	}
	for _, w := range v.Workers {
		if w.Digest != v.Deployment.Active.Digest || w.State != "live" {
			return fmt.Errorf("%+v", w)
		}
	}
	return nil
}
