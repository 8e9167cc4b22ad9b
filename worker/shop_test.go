package worker_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/safetensors"
	"github.com/cellmq/cellmq/registry"
	"github.com/cellmq/cellmq/worker"
)

// shop is an operator: a registry to push to and to deploy from.
type shop struct {
	t  *testing.T
	nc *nats.Conn
	*registry.Registry
	digests map[string]string // by model@version
}

func newShop(t *testing.T, server *broker.Server, options ...nats.Option) *shop {
	t.Helper()
	nc, err := nats.Connect(server.URL(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	r, err := registry.New(registry.Config{Conn: nc})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &shop{t: t, nc: nc, Registry: r, digests: map[string]string{}}
}

// spelling is the directory of a speller with its golden output, which names its
// weights.
func spelling(tb testing.TB, version, text string) fstest.MapFS {
	tb.Helper()
	config, tensors := spellerParts(text, version)
	return speltWith(tb, config, text, tensors)
}

// speltWith is the directory of a speller with these tensors.
func speltWith(tb testing.TB, config, text string, tensors []safetensors.Values) fstest.MapFS {
	tb.Helper()
	var file bytes.Buffer
	if err := safetensors.Write(&file, tensors, nil); err != nil {
		tb.Fatal(err)
	}
	sum := sha256.Sum256(file.Bytes())
	var tokens []int32
	for i := range len(text) {
		tokens = append(tokens, int32(text[(i+1)%len(text)]))
	}
	golden, err := json.Marshal(map[string]any{
		"input": text[:1], "max_tokens": len(text), "tokens": tokens, "text": text[1:] + text[:1],
		"finish_reason": "length", "tolerance": 0, "weights_sha256": hex.EncodeToString(sum[:]),
	})
	if err != nil {
		tb.Fatal(err)
	}
	return fstest.MapFS{
		"config.json": {Data: []byte(config)}, "model.safetensors": {Data: file.Bytes()}, "golden.jsonl": {Data: append(golden, '\n')},
	}
}

// push stores a version.
func (s *shop) push(model, version string, files fstest.MapFS) {
	s.t.Helper()
	digest, err := models.Digest(files)
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.Push(s.t.Context(), files, registry.Manifest{Model: model, Version: version, Digest: digest}, nil); err != nil {
		s.t.Fatal(err)
	}
	s.digests[model+"@"+version] = digest
}

// ref names a version that was pushed.
func (s *shop) ref(model, version string) registry.Ref {
	return registry.Ref{Version: version, Digest: s.digests[model+"@"+version]}
}

// deployment reads the deployment of a model.
func (s *shop) deployment(model string) *registry.Deployment {
	s.t.Helper()
	all, _, err := s.Deployments(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	if d := all[model]; d != nil {
		return d
	}
	return registry.Undeployed(model)
}

// begin begins to deploy a version.
func (s *shop) begin(model, version string, o registry.Options) {
	s.t.Helper()
	d, err := s.deployment(model).Begin(s.ref(model, version), o, nil)
	if err == nil {
		err = s.Write(s.t.Context(), d)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// settled waits until nothing of a model is under way.
func (s *shop) settled(model string) *registry.Deployment {
	s.t.Helper()
	var d *registry.Deployment
	eventually(s.t, "the deployment of "+model+" ends", func() bool {
		d = s.deployment(model)
		return d.Phase == registry.Steady
	})
	return d
}

// deploy deploys a version, all at once, and waits until it is active.
func (s *shop) deploy(model, version string) {
	s.t.Helper()
	s.begin(model, version, registry.Options{Canary: registry.Whole})
	if d := s.settled(model); d.Active != s.ref(model, version) {
		s.t.Fatalf("deploy %s@%s: active %v, reason %q", model, version, d.Active, d.Reason)
	}
}

// reported waits until a worker reports a version in one of some states, and
// returns what it reports.
func (s *shop) reported(model, version string, states ...string) registry.VersionReport {
	s.t.Helper()
	var found registry.VersionReport
	eventually(s.t, fmt.Sprintf("%s@%s is reported as %v", model, version, states), func() bool {
		reports, err := s.Reports(s.t.Context())
		if err != nil {
			s.t.Fatal(err)
		}
		for _, r := range reports {
			for _, m := range r.Models {
				for _, v := range m.Versions {
					if m.Model == model && v.Ref == s.ref(model, version) && slices.Contains(states, v.State) {
						found = v
						return true
					}
				}
			}
		}
		return false
	})
	return found
}

// buyer asks models and wants finals.
type buyer struct {
	tb   testing.TB
	nc   *nats.Conn
	sub  *nats.Subscription
	name string
	n    int

	worker string // that accepted the last request
}

func newBuyer(tb testing.TB, nc *nats.Conn, name string) *buyer {
	tb.Helper()
	return &buyer{tb: tb, nc: nc, name: name, sub: subscribe(tb, nc, "infer.out."+name+".*")}
}

// ask sends a request on a path, req or rt, and returns its terminal frame; an
// empty one when nobody serves the model.
func (c *buyer) ask(path, model, input string, tokens int) broker.Frame {
	c.tb.Helper()
	c.n++
	return c.askAs(fmt.Sprintf("%s%012d", c.name, c.n), path, model, input, tokens)
}

// askAs is ask with an id, and header pairs.
func (c *buyer) askAs(id, path, model, input string, tokens int, header ...string) broker.Frame {
	c.tb.Helper()
	subject := "infer.req." + model + ".std." + c.name
	if path == "rt" {
		subject = "infer.rt." + model
	}
	publish(c.tb, c.nc, subject, "infer.out."+c.name+"."+id,
		fmt.Appendf(nil, `{"input":%q,"max_tokens":%d}`, input, tokens), append(header, "Nats-Msg-Id", id)...)
	for {
		m, err := c.sub.NextMsg(patience)
		if errors.Is(err, nats.ErrNoResponders) {
			return broker.Frame{ID: id}
		}
		if err != nil {
			c.tb.Fatalf("%s: no frame: %v", id, err)
		}
		if isPubAck(m.Data) {
			continue
		}
		f, err := broker.DecodeFrame(m.Data)
		if err != nil {
			c.tb.Fatalf("frame %q: %v", m.Data, err)
		}
		if f.ID == id && f.Type == broker.FrameAccepted {
			c.worker = f.Worker
		}
		if f.ID == id && f.Type.Terminal() {
			return f
		}
	}
}

// spell asks a speller of some letters, and wants them from the version that the
// final names.
func (c *buyer) spell(path, model string, texts map[string]string) (version string) {
	c.tb.Helper()
	f := c.ask(path, model, "a", 12)
	if f.Final == nil {
		c.tb.Errorf("%s ended with %v", f.ID, f.Error)
		return ""
	}
	text := texts[f.Version]
	if want := strings.Repeat(text[1:]+text[:1], 12)[:12]; f.Text != want {
		c.tb.Errorf("%s of version %s wrote %q, want %q", f.ID, f.Version, f.Text, want)
	}
	return f.Version
}

// letters are what versions of spellers spell: all begin with a.
var letters = map[string]string{"1": "abc", "2": "axyz", "3": "aopqrs"}

// pushLetters pushes versions of a speller.
func (s *shop) pushLetters(model string, versions ...string) {
	s.t.Helper()
	for _, v := range versions {
		s.push(model, v, spelling(s.t, v, letters[v]))
	}
}

// startServing runs a worker that has a speller "own", and serves what is deployed.
func startServing(t *testing.T, server *broker.Server, change func(*worker.Config)) *started {
	t.Helper()
	return start(t, server, worker.Deps{Models: []*models.Model{speller(t, "own", "abc")}}, func(cfg *worker.Config) {
		cfg.Models = nil
		if change != nil {
			change(cfg)
		}
	})
}

// metrics reads what a worker counts.
func metrics(t *testing.T, w *started) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.AdminAddress()+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
