//go:build unix

package chaos_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/registry"
)

// TestFlippedBitNeverServes has two workers that serve a version, and deploys one
// with a flipped bit, and one that only one of them has room for. Neither ever
// answers a request; why not is what the command line, the reports and the metrics
// say, and the old version goes on.
func TestFlippedBitNeverServes(t *testing.T) {
	t.Parallel()
	const budget = 4 << 20
	server := brokertest.Server(t)
	s := newShop(t, server.URL())
	s.command("model", "push", s.make("m", "1", 64, 1, false))
	workers := []*member{
		newMember(t, "w1", server.URL(), 0, 1, "CELLMQ_MODELS=listops,m", "CELLMQ_CACHE_DIR="+t.TempDir()),
		newMember(t, "w2", server.URL(), 0, 1, "CELLMQ_MODELS=listops,m", "CELLMQ_CACHE_DIR="+t.TempDir(), fmt.Sprint("CELLMQ_MODEL_BYTES=", budget)),
	}
	s.command("model", "deploy", "m@1", "--watch", "0")
	l := startLoad(t, server.URL(), 20)
	s.pushFlipped("m", "2")
	s.command("model", "push", s.make("m", "3", 512, 3, false))
	for _, tt := range [][2]string{{"2", "weights_sha256"}, {"3", "memory budget"}} {
		version, want := tt[0], tt[1]
		out, err := s.try("model", "deploy", "m@"+version, "--watch", "0")
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("deploy of version %s: %v: %s", version, err, out)
		}
		v := s.show("m")
		if d := v.Deployment; d.Active.Version != "1" || d.Phase != registry.Steady || !strings.Contains(d.Reason, want) ||
			!d.Refuses(registry.Ref{Version: version, Digest: v.digest(version)}) {
			t.Errorf("after version %s: %+v", version, d)
		}
		t.Logf("version %s: %s", version, v.Deployment.Reason)
		checkFailed(t, s, workers, version, want)
	}
	versions := map[string]int{}
	for _, one := range l.stop() {
		if err := one.check(one.mode); err != nil {
			t.Errorf("%s: %v", one.id, err)
		}
		versions[one.final.Version]++
	}
	if len(versions) != 1 || versions["1"] == 0 {
		t.Errorf("requests by version: %v", versions)
	}
	for _, w := range workers {
		for _, version := range []string{"2", "3"} {
			served, err := w.metric(t.Context(), "cellmq_version_requests_total", `model="m"`, `version="`+version+`"`)
			if err != nil {
				t.Error(err)
			}
			for series, n := range served {
				if n > 0 {
					t.Errorf("worker %s: %s %v", w.name, series, n)
				}
			}
		}
		if err := w.alive(); err != nil {
			t.Error(err)
		}
	}
}

// checkFailed wants the version to be failed in the reports and the metrics of some
// worker, and to be served by none.
func checkFailed(t *testing.T, s *shop, workers []*member, version, why string) {
	t.Helper()
	eventually(t, "version "+version+" is reported as failed", func(ctx context.Context) error {
		v := s.show("m")
		failed := 0
		for _, w := range v.of(version) {
			if w.State == "live" {
				t.Errorf("%+v", w)
			}
			if w.State == "failed" && strings.Contains(w.Reason, why) {
				failed++
			}
		}
		live := 0
		for _, w := range v.of("1") {
			if w.State == "live" {
				live++
			}
		}
		series, loads := 0, 0.
		for _, w := range workers {
			found, err := w.metric(ctx, "cellmq_model_failed", `model="m"`, `version="`)
			if err != nil {
				return err
			}
			series += len(found)
			all, err := w.metric(ctx, "cellmq_model_loads_total", `model="m"`, `result="failed"`)
			if err != nil {
				return err
			}
			for _, n := range all {
				loads += n
			}
		}
		if failed == 0 || live != len(workers) || series == 0 || loads == 0 {
			return fmt.Errorf("%d workers report it, %d serve the old one, %d series, %v failed loads: %+v", failed, live, series, loads, v.Workers)
		}
		return nil
	})
}

// pushFlipped pushes a version whose golden outputs were made before a bit of its
// weights flipped. The command line refuses that, so somebody else pushes it.
func (s *shop) pushFlipped(model, version string) {
	s.t.Helper()
	dir := s.make(model, version, 64, 2, false)
	path := filepath.Join(dir, "model.safetensors")
	b, err := os.ReadFile(path)
	if err != nil {
		s.t.Fatal(err)
	}
	b[len(b)-4] ^= 1 // the lowest bit of a weight
	if err := os.WriteFile(path, b, 0o600); err != nil {
		s.t.Fatal(err)
	}
	if out, err := s.try("model", "push", dir); err == nil || !strings.Contains(out, "weights_sha256") {
		s.t.Errorf("push: %v: %s", err, out)
	}
	nc, err := broker.Dial(s.t.Context(), s.url, "somebody", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	defer nc.Close()
	r, err := registry.New(registry.Config{Conn: nc})
	if err != nil {
		s.t.Fatal(err)
	}
	files := os.DirFS(dir)
	digest, err := models.Digest(files)
	if err == nil {
		_, err = r.Push(s.t.Context(), files, registry.Manifest{Model: model, Version: version, Digest: digest}, nil)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}
