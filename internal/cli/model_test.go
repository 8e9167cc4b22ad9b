package cli_test

import (
	"context"
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/registry"
)

func TestModelUsage(t *testing.T) {
	t.Parallel()
	dir := fixture(t, "lm-gru-1x48", "lm")
	for _, tc := range []struct {
		name string
		args []string
		code int
		out  string
		err  string
	}{
		{"help", []string{"--help"}, 0, "cellmq model rollback my-lm", ""},
		{"nothing", nil, 0, "Available Commands", ""},
		{"unknown", []string{"train"}, 2, "", `unknown command "train"`},
		{"help of deploy", []string{"deploy", "--help"}, 0, "--canary 10 --hold 30m", ""},
		{"no directory", []string{"push"}, 2, "", "arg"},
		{"directory that is none", []string{"push", filepath.Join(dir, "none")}, 1, "", "none: no such file or directory"},
		{"directory without a name", []string{"push", "/"}, 2, "", "--name"},
		{"bad name", []string{"push", dir, "--name", "My LM"}, 2, "", `"My LM" is no name of a model`},
		{"bad store", []string{"push", dir, "--store-bytes", "-1"}, 2, "", "--store-bytes -1"},
		{"pull without a version", []string{"pull", "m", "x"}, 2, "", `"m" names no version: m@VERSION wanted`},
		{"show of no model", []string{"show", "a.b"}, 2, "", `"a.b" is no name of a model`},
		{"empty version", []string{"show", "m@"}, 2, "", `version "" of m: 1 to 64 bytes wanted`},
		{"long version", []string{"show", "m@" + strings.Repeat("x", 65)}, 2, "", "1 to 64 bytes wanted"},
		{"deploy without a version", []string{"deploy", "m"}, 2, "", "NAME@VERSION wanted, or --canary"},
		{"promotion with a hold", []string{"deploy", "m", "--canary", "5", "--hold", "1m"}, 2, "", "NAME@VERSION wanted"},
		{"canary above", []string{"deploy", "m@1", "--canary", "100.01"}, 2, "", "--canary 100.01: 0 to 100 percent"},
		{"canary below", []string{"deploy", "m@1", "--canary", "-1"}, 2, "", "--canary -1: 0 to 100 percent"},
		{"canary too fine", []string{"deploy", "m@1", "--canary", "0.001"}, 2, "", "steps of 0.01"},
		{"canary that is none", []string{"deploy", "m@1", "--canary", "NaN"}, 2, "", "--canary NaN"},
		{"hold too long", []string{"deploy", "m@1", "--canary", "1", "--hold", "169h"}, 2, "", "--hold 169h0m0s: 0 to 168h0m0s"},
		{"hold without a canary", []string{"deploy", "m@1", "--hold", "1m"}, 2, "", "--canary below 100"},
		{"watch too long", []string{"deploy", "m@1", "--watch", "61m"}, 2, "", "--watch 1h1m0s: 0 to 1h0m0s"},
		{"undeploy of a version", []string{"undeploy", "m@1"}, 2, "", `"m@1" is no name of a model`},
		{"no time", []string{"deploy", "m@1", "--timeout", "-1s"}, 2, "", "--timeout -1s: not negative wanted"},
		{"time for nothing", []string{"rollback", "m", "--timeout", "1s", "--no-wait"}, 2, "", "only without --no-wait"},
		{"delete of nothing", []string{"delete"}, 2, "", "either NAME@VERSION or --unused"},
		{"delete of both", []string{"delete", "m@1", "--unused"}, 2, "", "either NAME@VERSION or --unused"},
		{"delete of a model", []string{"delete", "m"}, 2, "", "m@VERSION wanted"},
		{"weights", []string{"verify", dir, "--weights", "int4"}, 2, "", `--weights "int4": f32, bf16 or int8 wanted`},
		{"no inputs", []string{"golden", dir}, 2, "", "either --input or --inputs"},
		{"both inputs", []string{"golden", dir, "--input", "1", "--inputs", "-"}, 2, "", "either --input or --inputs"},
		{"bad bound", []string{"golden", dir, "--input", "1", "--max-tokens", "-1"}, 2, "", "--max-tokens -1"},
		{"no server", []string{"list", "--nats-url", "nats://me:secret@127.0.0.1:1"}, 1, "", "--nats-url"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := run(t, "", append([]string{"model"}, tc.args...)...)
			r.want(t, tc.code, tc.out, tc.err)
			if strings.Contains(r.err, "secret") {
				t.Errorf("shows a password: %s", r.err)
			}
		})
	}
}

// fixture copies a model that was trained elsewhere into a directory of a name.
func fixture(t *testing.T, which, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("..", "..", "models", "testdata", "fixtures", which))); err != nil {
		t.Fatal(err)
	}
	return dir
}

// setVersion writes a version into a model's configuration.
func setVersion(t *testing.T, dir, version string) {
	t.Helper()
	path := filepath.Join(dir, "config.json")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(b, &config); err != nil {
		t.Fatal(err)
	}
	config["version"] = version
	if b, err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// shelf is a server, and what its workers would do: it takes what deployments want
// for loaded and moves them on.
type shelf struct {
	url      string
	conn     *nats.Conn
	registry *registry.Registry

	mu     sync.Mutex
	broken map[string]string // versions that cannot be loaded, and why
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	return newShelfOn(t, brokertest.Server(t))
}

func newShelfOn(t *testing.T, server *broker.Server) *shelf {
	t.Helper()
	conn := brokertest.Connect(t, server, broker.Config{}).NATS()
	r, err := registry.New(registry.Config{Conn: conn})
	if err != nil {
		t.Fatal(err)
	}
	return &shelf{url: server.URL(), conn: conn, registry: r, broken: map[string]string{}}
}

// put writes a record as anybody may who can write.
func (s *shelf) put(t *testing.T, key, record string) {
	t.Helper()
	if _, err := s.conn.Request("$KV.CELLMQ_MODELS."+key, []byte(record), patience); err != nil {
		t.Fatal(err)
	}
}

func (s *shelf) run(t *testing.T, args ...string) result {
	t.Helper()
	r := run(t, "", append([]string{"model", args[0], "--nats-url", s.url}, args[1:]...)...)
	if strings.Contains(r.out+r.err, "\x1b") {
		t.Errorf("an escape sequence gets to the terminal: %q", r.out+r.err)
	}
	return r
}

// report is a worker's that has versions loaded. Some have a reason of a state before.
func (s *shelf) report(t *testing.T, model string, loaded ...registry.Ref) {
	t.Helper()
	m := registry.ModelReport{Model: model}
	for _, ref := range loaded {
		m.Versions = append(m.Versions, registry.VersionReport{Ref: ref, State: registry.StateLive, Reason: "two versions are live"})
	}
	if err := s.registry.Report(t.Context(), registry.Report{Worker: "w1", Models: []registry.ModelReport{m}}); err != nil {
		t.Fatal(err)
	}
}

// breaks makes a version one that no worker can load.
func (s *shelf) breaks(version, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken[version] = reason
}

// serve begins to act as a worker, until the test ends.
func (s *shelf) serve(t *testing.T, model string) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	t.Cleanup(func() {
		stop()
		work.Wait()
	})
	work.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			s.turn(ctx, model)
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	})
}

// turn reports and moves on. What fails, the next turn does again.
func (s *shelf) turn(ctx context.Context, model string) {
	all, _, err := s.registry.Deployments(ctx)
	if err != nil {
		return
	}
	d := all[model]
	if d == nil {
		d = registry.Undeployed(model)
	}
	m := registry.ModelReport{Model: model, Serial: d.Serial}
	for _, ref := range d.Wanted() {
		if ref == (registry.Ref{}) {
			continue
		}
		v := registry.VersionReport{Ref: ref, State: registry.StateWarm, Weights: "f32", LoadMillis: 12, WeightBytes: 3 << 20, Running: 2}
		s.mu.Lock()
		if reason, ok := s.broken[ref.Version]; ok {
			v.State, v.Reason = registry.StateFailed, reason
		}
		s.mu.Unlock()
		m.Versions = append(m.Versions, v)
	}
	if s.registry.Report(ctx, registry.Report{Worker: "w1", Models: []registry.ModelReport{m}}) != nil {
		return
	}
	reports, err := s.registry.Reports(ctx)
	if err != nil {
		return
	}
	if next, changed := d.Advance(reports, time.Hour, "w1"); changed && d.Phase != registry.Canary {
		_ = s.registry.Write(ctx, next) // or the next turn
	}
}

// shownModel is what programs read of show.
type shownModel struct {
	Versions []struct {
		Version, Digest, Role string
		Golden                int
		SelfMade              bool `json:"self_made"`
		Parameters, Bytes     int64
		Cells                 []string
		Files                 []struct{ Name, SHA256 string }
	}
	Deployment *struct {
		Serial                 uint64
		Phase, Reason          string
		Active, Next, Previous struct{ Version string }
		Share                  int
		Pinned                 bool
	}
	Workers []struct{ Worker, Version, State, Reason, Role string }
}

// TestModelLife takes versions from a directory to their deletion.
func TestModelLife(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	dir := fixture(t, "lm-gru-1x48", "my-lm")
	s.run(t, "list").want(t, 1, "", "no model registry on the server ('cellmq model push' makes one)")
	s.run(t, "push", dir).want(t, 0, "my-lm@1 pushed: ", "no golden outputs")
	run(t, "", "model", "golden", dir, "--input", "1 2 3").want(t, 0, "1 golden outputs, self-made", "")
	s.run(t, "push", dir).want(t, 1, "", "version is taken (give the new files another version in config.json)")
	setVersion(t, dir, "2 beta")
	s.run(t, "push", dir).want(t, 0, "my-lm@2 beta pushed: ", "")
	r := s.run(t, "push", dir, "--json")
	r.want(t, 0, `"there":true`, "")
	type pushed struct {
		Digest      string
		Bytes, Sent int64
	}
	if p := decoded[pushed](t, r.out); p.Sent != 0 || p.Bytes < 60_000 || len(p.Digest) != 64 {
		t.Errorf("%+v", p)
	}
	setVersion(t, dir, "3")
	s.run(t, "push", dir).want(t, 0, "my-lm@3 pushed: ", "")
	s.run(t, "list").want(t, 0, "my-lm  2 beta   -     rnn_lm", "")
	s.run(t, "list", "other").want(t, 0, "", "no versions")
	if n := strings.Count(s.run(t, "list", "my-lm", "--json").out, `"self_made":true`); n != 2 {
		t.Errorf("%d self-made", n)
	}
	s.run(t, "show", "my-lm").want(t, 0, "no worker reports it", "")
	for _, omitted := range []int{7, 0} {
		if err := s.registry.Report(t.Context(), registry.Report{Worker: "wide", Omitted: omitted}); err != nil {
			t.Fatal(err)
		}
		if says := strings.Contains(s.run(t, "show", "my-lm").out, "worker wide may have it: its report has no room for 7 of its models"); says != (omitted > 0) {
			t.Errorf("%d omitted: said %v", omitted, says)
		}
	}
	s.run(t, "show", "other").want(t, 1, "", "not in the registry ('cellmq model list' shows those there are)")
	s.run(t, "show", "my-lm@4").want(t, 1, "", "my-lm@4")
	s.run(t, "deploy", "my-lm@4").want(t, 1, "", "not in the registry")

	s.serve(t, "my-lm")
	s.run(t, "deploy", "my-lm@1", "--watch", "0").want(t, 0, "my-lm: 1 serves, before it each worker's own\n", "no golden outputs")
	s.run(t, "deploy", "my-lm@1").want(t, 0, "my-lm: 1 serves", "nothing to do")
	s.run(t, "deploy", "my-lm@2 beta", "--canary", "12.5", "--watch", "0").want(t, 0, `1 serves, 2 beta has 12.5 % of the requests`, "")
	s.run(t, "deploy", "my-lm@3").want(t, 1, "", "a deployment is under way ('cellmq model show'")
	s.run(t, "pin", "my-lm").want(t, 1, "", "under way")
	s.run(t, "delete", "my-lm@2 beta").want(t, 1, "", "version is in use")
	s.run(t, "deploy", "my-lm", "--canary", "50").want(t, 0, "50 %", "")
	s.run(t, "deploy", "my-lm", "--canary", "50").want(t, 1, "", "has that share")
	m := decoded[shownModel](t, s.run(t, "show", "my-lm", "--json").out)
	if d := m.Deployment; d == nil || d.Phase != "canary" || d.Share != 5000 || d.Next.Version != "2 beta" || d.Serial != 2 ||
		len(m.Versions) != 3 || m.Versions[0].Role != "active" || m.Versions[1].Role != "canary" || m.Versions[2].Role != "" {
		t.Errorf("%+v", m)
	}
	s.run(t, "deploy", "my-lm", "--canary", "100").want(t, 0, "my-lm: 2 beta serves, before it 1", "")
	s.run(t, "deploy", "my-lm", "--canary", "100").want(t, 1, "", "no canary")
	s.run(t, "rollback", "my-lm").want(t, 0, `my-lm: 1 serves, before it 2 beta`, "")
	s.run(t, "pin", "my-lm").want(t, 0, "1 serves, before it 2 beta, pinned", "")
	s.run(t, "pin", "my-lm").want(t, 0, "pinned", "nothing to do")
	s.run(t, "deploy", "my-lm@3").want(t, 1, "", "deployment is pinned ('cellmq model unpin' allows it)")
	s.run(t, "rollback", "my-lm").want(t, 1, "", "deployment is pinned")
	s.run(t, "delete", "my-lm@3").want(t, 1, "", "deployment is pinned")
	s.run(t, "unpin", "my-lm").want(t, 0, "my-lm: 1 serves", "")
	s.run(t, "unpin", "other").want(t, 0, "other", "nothing to do")
	s.run(t, "pin", "other").want(t, 1, "", "neither deployed nor served")
	s.run(t, "rollback", "other").want(t, 1, "", "no previous version")
	s.run(t, "delete", "my-lm@1").want(t, 1, "", "version is in use")
	s.run(t, "delete", "my-lm@3").want(t, 0, "my-lm@3 is deleted\n", "")
	s.run(t, "delete", "my-lm@3").want(t, 1, "", "not in the registry")
	s.run(t, "delete", "--unused").want(t, 0, " freed\n", "")

	copied := filepath.Join(t.TempDir(), "deep", "my-lm")
	s.run(t, "pull", "my-lm@2 beta", copied).want(t, 0, "my-lm@2 beta is in "+copied, "")
	s.run(t, "pull", "my-lm@2 beta", copied).want(t, 1, "", "exist")
	run(t, "", "model", "verify", copied).want(t, 0, decoded[pushed](t, r.out).Digest, "")
	m = decoded[shownModel](t, s.run(t, "show", "my-lm@1", "--json").out)
	if len(m.Versions) != 1 || len(m.Workers) != 1 || m.Workers[0].Worker != "w1" || m.Workers[0].State != "warm" || m.Workers[0].Role != "active" ||
		!slices.Equal(m.Versions[0].Cells, []string{"layers", "project"}) || m.Versions[0].Parameters != 17119 || len(m.Versions[0].Files) != 3 {
		t.Errorf("%+v", m)
	}
	s.run(t, "show", "my-lm@1").want(t, 0, "w1      1        warm   12ms", "")

	s.run(t, "delete", "my-lm@2 beta").want(t, 0, "is deleted", "") // no worker has it, so it is kept no longer
	s.run(t, "rollback", "my-lm").want(t, 1, "", "no previous version: nothing to do ('cellmq model undeploy my-lm' takes it out of service)")
	s.run(t, "show", "my-lm").want(t, 0, "steady: 1 serves\n", "")
	s.run(t, "undeploy", "my-lm").want(t, 0, "my-lm: each worker's own serves\n", "")
	s.run(t, "undeploy", "my-lm").want(t, 0, "my-lm: each worker's own serves\n", "nothing to do")
	s.run(t, "show", "my-lm").want(t, 0, "undeployed by an operator", "")
	s.run(t, "delete", "my-lm@1").want(t, 0, "is deleted", "")
	s.run(t, "list").want(t, 0, "", "no versions")
	s.run(t, "show", "my-lm").want(t, 1, "", "not in the registry")
}

// TestModelRefused deploys what no worker can load.
func TestModelRefused(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	dir := fixture(t, "lm-gru-1x48", "lm")
	for _, version := range []string{"1", "2"} {
		setVersion(t, dir, version)
		s.run(t, "push", dir).want(t, 0, "pushed", "")
	}
	s.breaks("2", "tensor rnn.weight_hh_l0 has shape [1 2], [3 4] wanted\x1b[2J")
	s.serve(t, "lm")
	s.run(t, "deploy", "lm@1", "--watch", "0").want(t, 0, "1 serves", "")
	s.run(t, "deploy", "lm@2").want(t, 1, "lm: 1 serves", "lm@2 is refused: ")
	s.run(t, "show", "lm").want(t, 0, "worker w1: tensor rnn.weight_hh_l0 has shape [1 2], [3 4] wanted", "")
	m := decoded[shownModel](t, s.run(t, "show", "lm", "--json").out)
	if m.Deployment == nil || m.Deployment.Phase != "steady" || !strings.Contains(m.Deployment.Reason, "[3 4] wanted") || m.Versions[1].Role != "refused" {
		t.Errorf("%+v", m)
	}
	s.breaks("1", "not at this moment")
	s.run(t, "show", "lm").want(t, 0, "refused", "")
}

// TestModelDeployInterrupted leaves the deployment when nobody waits any longer.
func TestModelDeployInterrupted(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	s.run(t, "push", fixture(t, "tree-h29", "trees")).want(t, 0, "trees@1 pushed", "")
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM} {
		p := launch(t, "model", "deploy", "trees@1", "--nats-url", s.url)
		p.says(t, "trees: loading: no worker reports the model")
		if err := p.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		<-p.done
		if code := p.cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(p.stderr(), "the deployment of trees goes on") {
			t.Errorf("%v: exit code %d, stderr %s", sig, code, p.stderr())
		}
		s.run(t, "show", "trees").want(t, 0, "loading: each worker's own serves, 1 is loaded", "")
		s.run(t, "rollback", "trees", "--reason", "nobody waits").want(t, 0, "trees: each worker's own serves", "")
		s.run(t, "show", "trees").want(t, 0, "nobody waits", "")
	}
	s.run(t, "deploy", "trees@1", "--no-wait").want(t, 0, "1 is loaded", "")
}

// TestModelOvertaken ends waiting when somebody else begins another deployment.
func TestModelOvertaken(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	dir := fixture(t, "tree-h29", "trees")
	for _, version := range []string{"1", "2"} {
		setVersion(t, dir, version)
		s.run(t, "push", dir).want(t, 0, "pushed", "")
	}
	p := launch(t, "model", "deploy", "trees@1", "--nats-url", s.url)
	p.says(t, "loading")
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.run(t, "rollback", "trees").want(t, 0, "own serves", "")
	s.run(t, "deploy", "trees@2", "--no-wait").want(t, 0, "2 is loaded", "")
	if err := p.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	<-p.done
	if code := p.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(p.stderr(), "another deployment of trees has begun") {
		t.Errorf("exit code %d, stderr %s", code, p.stderr())
	}
}

// TestModelPushInterrupted interrupts a push that waits for somebody else's.
func TestModelPushInterrupted(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	dir := fixture(t, "tree-h29", "trees")
	if err := s.registry.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.put(t, "lock", `{"owner":"host 1 x","purpose":"push big@1","beat":7}`)
	p := launch(t, "model", "push", dir, "--nats-url", s.url)
	p.says(t, `purpose="push big@1"`)
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-p.done
	if code := p.cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(p.stderr(), "interrupted, push of trees@1: nothing was sent") {
		t.Errorf("exit code %d, stderr %s", code, p.stderr())
	}
	s.put(t, "lock", `{"owner":"","purpose":"","beat":8}`)
	s.run(t, "list").want(t, 0, "", "no versions")
	s.run(t, "push", dir).want(t, 0, "trees@1 pushed", "")
}

// TestModelDeployOutlastsTheServer goes on waiting when the server restarts.
func TestModelDeployOutlastsTheServer(t *testing.T) {
	t.Parallel()
	cfg := broker.ServerConfig{DataDir: t.TempDir(), Port: broker.PortRandom}
	start := func() *broker.Server {
		server, err := broker.StartServer(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(server.Shutdown)
		return server
	}
	server := start()
	s := newShelfOn(t, server)
	s.run(t, "push", fixture(t, "tree-h29", "trees")).want(t, 0, "pushed", "")
	p := launch(t, "model", "deploy", "trees@1", "--watch", "0", "--nats-url", s.url)
	p.says(t, "loading")
	u, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Port, err = strconv.Atoi(u.Port()); err != nil {
		t.Fatal(err)
	}
	server.Shutdown()
	p.says(t, "nats disconnected")
	start()
	s.serve(t, "trees")
	p.ends(t)
	s.run(t, "show", "trees").want(t, 0, "steady: 1 serves", "")
}

// TestModelSecure manages models as an operator, and not as a client.
func TestModelSecure(t *testing.T) {
	server := brokertest.Secure(t)
	dir := fixture(t, "tree-h29", "trees")
	t.Setenv("CELLMQ_NATS_URL", server.URL())
	t.Setenv("CELLMQ_NATS_NKEY", server.Seeds["operator"])
	for _, step := range [][]string{
		{"push", dir},
		{"list"},
		{"show", "trees"},
		{"deploy", "trees@1", "--no-wait"},
		{"rollback", "trees"},
		{"pull", "trees@1", filepath.Join(t.TempDir(), "trees")},
		{"delete", "trees@1"},
		{"delete", "--unused"},
	} {
		run(t, "", append([]string{"model"}, step...)...).want(t, 0, "", "")
	}
	t.Setenv("CELLMQ_NATS_NKEY", server.Seeds["c1"])
	for _, step := range [][]string{{"push", dir}, {"list"}, {"rollback", "trees"}} {
		p := launch(t, append([]string{"model"}, step...)...)
		<-p.done
		if code := p.cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(p.stderr(), "ermission") {
			t.Errorf("%v: exit code %d, stderr %s", step, code, p.stderr())
		}
	}
}
