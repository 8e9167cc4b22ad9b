//go:build unix

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/registry"
)

// The canary.
const (
	canaryShare   = 0.10
	canaryRepeats = 300 // ids that are sent again
	canaryWidth   = 32  // requests at once
	rollbackIn    = 10 * time.Second
)

// TestCanary has two workers give 10 % of the requests to a new version: as many get
// it as chance allows, and a request of the same id gets the same version again,
// also when the worker dies that began it. Then the version fails, and is taken back
// by itself.
func TestCanary(t *testing.T) {
	t.Parallel()
	n := 1500
	if *full {
		n = 5000
	}
	server := brokertest.Server(t)
	s := newShop(t, server.URL())
	s.command("model", "push", s.make("m", "1", 32, 1, false))
	pushUnchecked(t, server.URL(), "m", "2", s.make("m", "2", 32, 2, true))
	var workers []*member
	for _, name := range []string{"w1", "w2"} {
		workers = append(workers, newMember(t, name, server.URL(), 2*time.Millisecond, 1, "CELLMQ_MODELS=listops,m", "CELLMQ_CACHE_DIR="+t.TempDir()))
	}
	s.command("model", "deploy", "m@1", "--watch", "0")
	s.command("model", "deploy", "m@2", "--canary", "10")
	v := s.show("m")
	rule := registry.Rule{Active: v.Deployment.Active, Next: v.Deployment.Next, Share: v.Deployment.Share}
	if rule.Active.Version != "1" || rule.Next.Version != "2" || rule.Share != canaryShare*registry.Whole {
		t.Fatalf("deployment %+v", v.Deployment)
	}
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("canary%08d", i)
	}
	first := sides(t, server.URL(), "first", ids, false)
	share, chosen := 0, 0
	for i, id := range ids {
		if first[i].final.Digest == rule.Next.Digest {
			share++
		}
		if rule.Choose("m", id) == rule.Next {
			chosen++
		}
	}
	sigma := math.Sqrt(float64(n) * canaryShare * (1 - canaryShare))
	if math.Abs(float64(share)-canaryShare*float64(n)) > 4*sigma || share != chosen {
		t.Errorf("%d of %d requests got the new version, %d should have; 4 sigma are %.0f", share, n, chosen, 4*sigma)
	}
	again := map[string][]*outcome{
		"realtime": sides(t, server.URL(), "second", ids[:canaryRepeats], true),
		"another":  sides(t, server.URL(), "third", ids[:canaryRepeats], true),
	}
	for how, got := range again {
		for i, o := range got {
			if o.final.Digest != first[i].final.Digest {
				t.Errorf("%s: version %s, and %s again by %s", ids[i], first[i].final.Version, o.final.Version, how)
			}
		}
	}
	t.Logf("%d of %d requests got the new version", share, n)
	retryStays(t, server.URL(), workers[1], rule)
	inject(t, s, rule)
}

// pushUnchecked stores a version that the program would refuse to push.
func pushUnchecked(t *testing.T, url, model, version, dir string) {
	t.Helper()
	files := os.DirFS(dir)
	digest, err := models.Digest(files)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newDepot(t, url).Push(t.Context(), files, registry.Manifest{Model: model, Version: version, Digest: digest}, nil); err != nil {
		t.Fatal(err)
	}
}

// sides has requests answered, all the same but for their ids, and wants no error.
func sides(t *testing.T, url, client string, ids []string, realtime bool) []*outcome {
	t.Helper()
	c := dial(t, url, client)
	out := make([]*outcome, len(ids))
	room := make(chan struct{}, canaryWidth)
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("no answer"))
	defer cancel()
	var all sync.WaitGroup
	for i, id := range ids {
		room <- struct{}{}
		all.Go(func() {
			a := ask{model: "m", options: broker.RequestOptions{
				ID: id, Mode: broker.ModeFinal, Realtime: realtime,
				Input: broker.Input{IDs: []int32{7, 9}, IsIDs: true}, Params: broker.Params{MaxTokens: ptr(4)},
			}}
			out[i] = a.perform(ctx, c)
			if err := out[i].check(a.options.Mode); err != nil {
				t.Errorf("%s: %v", id, err)
			}
			<-room
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return out
}

// retryStays kills a worker while it has long requests on both sides: the other one
// ends them in the version that began them.
func retryStays(t *testing.T, url string, victim *member, rule registry.Rule) {
	t.Helper()
	c := dial(t, url, "retry")
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("no answer"))
	defer cancel()
	var mu sync.Mutex
	begun := map[string]string{} // digest, by id, of what the victim began
	both := make(chan struct{})
	out := map[string]*outcome{}
	var all sync.WaitGroup
	for _, id := range append(idsOf(rule, rule.Next, "long", 6), idsOf(rule, rule.Active, "long", 6)...) {
		o := &outcome{}
		out[id] = o
		stream, err := c.client.Request(ctx, "m", broker.RequestOptions{
			ID: id, Mode: broker.ModeStream, Input: broker.Input{IDs: []int32{7, 9}, IsIDs: true}, Params: broker.Params{MaxTokens: ptr(1024)},
		})
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			o.err = o.read(stream, func(f *broker.Frame) {
				if f.Type != broker.FrameAccepted || f.Attempt > 1 || f.Worker != victim.name {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				before := len(digestsOf(begun))
				begun[id] = f.Digest
				if before < 2 && len(digestsOf(begun)) == 2 {
					close(both)
				}
			})
		})
	}
	select {
	case <-both:
	case <-ctx.Done():
		t.Fatalf("the victim began %v", begun)
	}
	if err := victim.kill(); err != nil {
		t.Error(err)
	}
	all.Wait()
	moved := 0
	for id, o := range out {
		if err := o.check(broker.ModeStream); err != nil {
			t.Errorf("%s: %v", id, err)
			continue
		}
		if want := rule.Choose("m", id); o.final.Digest != want.Digest {
			t.Errorf("%s: version %s in attempt %d, want %s", id, o.final.Version, o.final.Attempt, want.Version)
		}
		if o.final.Attempt > 1 {
			moved++
		}
	}
	if moved == 0 {
		t.Error("no request was taken over")
	}
	t.Logf("%d of %d requests ended on the other worker", moved, len(out))
	if err := errors.Join(victim.start(t.Context()), victim.serving()); err != nil {
		t.Fatal(err)
	}
}

func digestsOf(begun map[string]string) []string {
	var out []string
	for _, d := range begun {
		if !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// idsOf returns ids that a rule gives a version.
func idsOf(rule registry.Rule, version registry.Ref, prefix string, n int) []string {
	var out []string
	for i := 0; len(out) < n; i++ {
		if id := fmt.Sprintf("%s%08d", prefix, i); rule.Choose("m", id) == version {
			out = append(out, id)
		}
	}
	return out
}

// inject sends the new version what it has no number for, until it is taken back.
// By the server's clock that is soon after the first error. Then the old version has
// all requests.
func inject(t *testing.T, s *shop, rule registry.Rule) {
	t.Helper()
	c := dial(t, s.url, "injector")
	ids := idsOf(rule, rule.Next, "inject", 400)
	refused, old := 0, 0
	var d *registry.Deployment
	r, err := registry.New(registry.Config{Conn: c.nc})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		stream, err := c.client.Request(ctx, "m", broker.RequestOptions{
			ID: id, Mode: broker.ModeFinal, Input: broker.Input{IDs: []int32{7, poison}, IsIDs: true}, Params: broker.Params{MaxTokens: ptr(4)},
		})
		o := &outcome{}
		if err == nil {
			err = o.read(stream, nil)
		}
		cancel()
		var failed *broker.Error
		switch {
		case errors.As(err, &failed) && failed.Code == broker.CodeNumericalError:
			refused++
		case err == nil && o.final.Version == "1":
			old++
		default:
			t.Fatalf("%s: %v, version %s", id, err, o.final.Version)
		}
		all, _, err := r.Deployments(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d = all["m"]; d.Refuses(rule.Next) && old >= 10 {
			break
		}
		wait(t.Context(), 50*time.Millisecond)
	}
	if !d.Refuses(rule.Next) || d.Active != rule.Active || d.Next != (registry.Ref{}) {
		t.Fatalf("%d errors, and the deployment is %+v", refused, d)
	}
	took := d.Stored.Sub(firstLetter(t, c))
	t.Logf("taken back %v after the first of %d errors: %s", took.Round(time.Millisecond), refused, d.Reason)
	if took > rollbackIn {
		t.Errorf("taken back only %v after the first error", took)
	}
	v := s.show("m")
	if v.Deployment.Active.Version != "1" || !strings.Contains(v.Deployment.Reason, "failed") {
		t.Errorf("shown: %+v", v.Deployment)
	}
	for _, id := range idsOf(rule, rule.Next, "after", 50) {
		for _, realtime := range []bool{false, true} {
			if o := sides(t, s.url, fmt.Sprint("after", realtime), []string{id}, realtime)[0]; o.final.Version != "1" {
				t.Errorf("%s: version %s serves", id, o.final.Version)
			}
		}
	}
}

// firstLetter is when the server stored the first dead letter.
func firstLetter(t *testing.T, c *sender) time.Time {
	t.Helper()
	js, err := jetstream.New(c.nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "INFER_DLQ")
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().State.FirstTime
}
