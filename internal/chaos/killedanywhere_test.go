//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/registry"
)

// strike is what is killed, and what is on its way at that time.
type strike struct{ victim, during string }

// rollout is two workers that have versions deployed, of which one was pushed anew
// each time, while things are killed.
type rollout struct {
	*depot
	r       *rand.Rand
	cluster *brokertest.ClusterT
	workers []*member
	caches  []string
	sender  *broker.Client
	bigs    []string      // the models, which take turns
	pushing time.Duration // what a push takes, and a deployment
	rolling time.Duration
	sent    int
	refs    map[string]registry.Ref // by model@version, of all that were pushed
}

// TestKilledAnywhere kills whoever pushes, whoever deploys, a worker or the server
// in the middle of a push, of a deployment and of loading. After each, versions
// that are listed are whole, the fleet comes to serve the one that was to be
// deployed, and in the end nothing is left that nobody needs.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(*seed, 6))
	o := newRollout(t, r)
	shape := randomLM{vocab: 64, hidden: 840, layers: 1} // three parts
	n := 0
	version := func() (model, dir string, ref registry.Ref) {
		n++
		model = o.bigs[n%len(o.bigs)]
		dir = filepath.Join(t.TempDir(), model)
		ref = shape.write(t, dir, strconv.Itoa(n), uint64(n))
		ref.Digest = golden(t, dir, "1 2 3")
		o.refs[model+"@"+ref.Version] = ref
		return model, dir, ref
	}
	for range o.bigs { // in peace
		model, dir, ref := version()
		start := time.Now()
		o.must("push", dir)
		o.pushing, start = time.Since(start), time.Now()
		o.must("deploy", model+"@"+ref.Version, "--watch", "0")
		o.rolling = time.Since(start)
		o.converged(model, ref)
	}
	t.Logf("seed %d: a push takes %v, a deployment %v", *seed, o.pushing.Round(time.Millisecond), o.rolling.Round(time.Millisecond))
	for _, s := range chosen(r) {
		model, dir, ref := version()
		start := time.Now()
		o.push(s, model, dir, ref)
		o.alone(model)
		o.deploy(s, model, ref)
		o.converged(model, ref)
		t.Logf("%s killed during %s of %s@%s: %v", s.victim, s.during, model, ref.Version, time.Since(start).Round(time.Millisecond))
		if t.Failed() {
			return
		}
	}
	o.abandon()
	o.clean()
}

// chosen are the strikes of a run, in any order: one at each victim, or all several
// times.
func chosen(r *rand.Rand) (out []strike) {
	all := map[string][]string{
		"pusher": {"push"}, "deployer": {"deploy"}, "worker": {"deploy", "load"}, "server": {"push", "deploy", "load"},
	}
	for _, victim := range slices.Sorted(maps.Keys(all)) {
		during := all[victim]
		if !*full {
			out = append(out, strike{victim, pick(r, during...)})
			continue
		}
		for range 5 {
			for _, d := range during {
				out = append(out, strike{victim, d})
			}
		}
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func newRollout(t *testing.T, r *rand.Rand) *rollout {
	t.Helper()
	cluster := brokertest.Cluster(t, 1)
	o := &rollout{depot: newDepot(t, cluster.URL()), r: r, cluster: cluster, refs: map[string]registry.Ref{}, bigs: []string{"big0", "big1", "big2"}}
	names := strings.Join(append([]string{"listops"}, o.bigs...), ",")
	for i := range 2 {
		cache := filepath.Join(t.TempDir(), "cache")
		o.caches = append(o.caches, cache)
		o.workers = append(o.workers, newMember(t, fmt.Sprint("w", i), cluster.URL(), 0, 1,
			"CELLMQ_CACHE_DIR="+cache, "CELLMQ_MODELS="+names))
	}
	sender, err := broker.NewClient(o.nc, broker.ClientConfig{Name: "rollout"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sender.Close() }) // with its connection
	o.sender = sender
	return o
}

// kill kills, and starts again what should run.
func (o *rollout) kill(victim string, p *brokertest.Process) {
	o.t.Helper()
	var err error
	switch victim {
	case "worker":
		w := o.workers[o.r.IntN(len(o.workers))]
		err = errors.Join(w.kill(), w.start(o.t.Context()), w.serving())
	case "server":
		o.cluster.Kill(0)
		ctx, cancel := context.WithTimeout(o.t.Context(), patience)
		defer cancel()
		err = errors.Join(o.cluster.Restart(ctx, 0), o.cluster.Await(ctx))
	default:
		p.Kill()
	}
	if err != nil {
		o.t.Fatal(err)
	}
}

// push pushes, as often as it takes when something is killed in the middle.
func (o *rollout) push(s strike, model, dir string, ref registry.Ref) {
	o.t.Helper()
	if s.during == "push" {
		before, _ := o.stored()
		p := o.begin("push", dir)
		if parts := o.r.IntN(3); parts > 0 {
			o.storing(p, before+parts)
		} else {
			wait(o.t.Context(), between(o.r, 0, o.pushing))
		}
		o.kill(s.victim, p)
		o.whole(model)
		if _, err := o.ended(p); err != nil {
			o.whole(model)
		}
	}
	o.must("push", dir)
	if all := o.whole(model); !slices.Contains(all, ref) {
		o.t.Errorf("%s@%s is not listed among %v", model, ref.Version, all)
	}
}

// alone waits until workers have no more than one version of a model: a third one
// would be refused.
func (o *rollout) alone(model string) {
	o.t.Helper()
	eventually(o.t, "old versions of "+model+" leave", func(ctx context.Context) error {
		reports, err := o.Reports(ctx)
		for _, r := range reports {
			for _, m := range r.Models {
				if m.Model == model && len(m.Versions) > 1 {
					err = fmt.Errorf("worker %s has %+v", r.Worker, m.Versions)
				}
			}
		}
		return err
	})
}

// deploy begins a deployment, in the middle of which something is killed.
func (o *rollout) deploy(s strike, model string, ref registry.Ref) {
	o.t.Helper()
	p := o.begin("deploy", model+"@"+ref.Version, "--watch", "0")
	switch s.during {
	case "deploy":
		wait(o.t.Context(), between(o.r, 0, o.rolling))
		o.kill(s.victim, p)
	case "load":
		o.loading(p, model, ref)
		wait(o.t.Context(), between(o.r, 0, 200*time.Millisecond))
		o.kill(s.victim, p)
	}
	_, _ = o.ended(p) // what became of it, the deployment says
}

// loading waits until a worker has begun to fetch or load a version.
func (o *rollout) loading(p *brokertest.Process, model string, ref registry.Ref) {
	o.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		for _, cache := range o.caches {
			began, err := filepath.Glob(filepath.Join(cache, registry.FetchPrefix+"*"))
			if _, done := os.Stat(filepath.Join(cache, ref.Digest)); err == nil && len(began) > 0 || done == nil {
				return
			}
		}
		select {
		case <-p.Done():
			o.t.Errorf("%s@%s was not loaded: %s", model, ref.Version, p.Output())
			return
		default:
		}
	}
}

// abandon leaves a push that has stored something, which is never taken up again.
func (o *rollout) abandon() {
	o.t.Helper()
	dir := filepath.Join(o.t.TempDir(), o.bigs[0])
	randomLM{vocab: 64, hidden: 840, layers: 4}.write(o.t, dir, "never", 0)
	before, _ := o.stored()
	p := o.begin("push", dir)
	o.storing(p, before+2)
	if p.Kill(); p.Err() == nil {
		o.t.Error("the push was too quick")
	}
}

// storing waits until the server has as many parts, or the push has ended.
func (o *rollout) storing(p *brokertest.Process, parts int) {
	o.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for now := 0; now < parts; now, _ = o.stored() {
		select {
		case <-tick.C:
		case <-p.Done():
			return
		}
	}
}
