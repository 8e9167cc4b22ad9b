package registry_test

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/registry"
)

// stepped is a connection on which something happens before one of the writes to
// the server.
type stepped struct {
	net.Conn

	mu     sync.Mutex
	writes int
	at     int // the write, 0: none
	do     func()
}

func (s *stepped) Write(b []byte) (int, error) {
	s.mu.Lock()
	s.writes++
	do := s.do
	if s.writes != s.at {
		do = nil
	}
	s.mu.Unlock()
	if do != nil {
		do()
	}
	return s.Conn.Write(b)
}

// before has do happen before the write number at, and counts from now.
func (s *stepped) before(at int, do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes, s.at, s.do = 0, at, do
}

// Dial is for nats.SetCustomDialer.
func (s *stepped) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	s.Conn = c
	return s, err
}

// onSteps is the registry of b on a connection of its own, whose writes are steps.
func onSteps(t *testing.T, b *bench) (*bench, *stepped) {
	t.Helper()
	steps := &stepped{}
	nc, err := nats.Connect(b.server.URL(), nats.SetCustomDialer(steps), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	r, err := registry.New(registry.Config{Conn: nc, Stale: stale})
	if err != nil {
		t.Fatal(err)
	}
	return &bench{server: b.server, nc: nc, js: b.js, Registry: r}, steps
}

// deploy does what an operator's command does: it reads the deployment, then the
// version, and writes what follows, again as long as others are faster.
func (b *bench) deploy(t *testing.T, model string) error {
	t.Helper()
	for {
		all, _, err := b.Deployments(t.Context())
		if err != nil {
			return err
		}
		d := all[model]
		if d == nil {
			d = registry.Undeployed(model)
		}
		m, err := b.Version(t.Context(), model, "1")
		if err != nil {
			return err
		}
		next, err := d.Begin(registry.Ref{Version: m.Version, Digest: m.Digest}, registry.Options{Canary: registry.Whole}, nil)
		if err != nil {
			return err
		}
		if err := b.Write(t.Context(), next); !errors.Is(err, registry.ErrConflict) {
			return err
		}
	}
}

// TestDeployBesideDelete has one happen, whole, before each step of the other. Of
// the two exactly one succeeds, and a version that is deployed is there.
func TestDeployBesideDelete(t *testing.T) {
	t.Parallel()
	for _, stepping := range []string{"delete", "deploy"} {
		t.Run(stepping, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			slow, steps := onSteps(t, b)
			seen := map[string]int{}
			for at := 1; ; at++ {
				model := fmt.Sprintf("m%d", at)
				files := dir(map[string][]byte{"a": []byte(model)})
				m, _ := b.push(t, version(model, "1"), files)
				if at%2 == 0 { // one that was deployed before
					b.store(t, deploySubject(model), []byte(fmt.Sprintf(`{"format":1,"model":%q,"serial":3,"phase":"steady"}`, model)))
				}
				var deployed, deleted error
				happened := false
				deploy := func(on *bench) { deployed = on.deploy(t, model) }
				remove := func(on *bench) { deleted = on.Delete(t.Context(), model, "1") }
				one, other := remove, deploy
				if stepping == "deploy" {
					one, other = deploy, remove
				}
				steps.before(at, func() { other(b); happened = true })
				one(slow)
				if !happened {
					if least := map[string]int{"delete": 10, "deploy": 3}[stepping]; at <= least {
						t.Errorf("%d steps, %d wanted", at-1, least)
					}
					break
				}
				seen[fmt.Sprintf("deployed %v, deleted %v", deployed == nil, deleted == nil)]++
				if (deployed == nil) == (deleted == nil) {
					t.Errorf("step %d: deploy %v, delete %v", at, deployed, deleted)
				}
				all, _, err := b.Deployments(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if d := all[model]; d != nil && d.Next.Digest == m.Digest {
					b.fetch(t, m, files)
				} else if deployed == nil {
					t.Errorf("step %d: not deployed: %+v", at, d)
				}
			}
			t.Log(seen)
			if stepping == "delete" && len(seen) != 2 {
				t.Error("one always wins")
			}
		})
	}
}

// TestUndeployAndDelete leaves nothing of a model behind.
func TestUndeployAndDelete(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	m, _ := b.push(t, version("m", "1"), dir(map[string][]byte{"a": []byte("a")}))
	d := registry.Undeployed("m")
	d.Serial, d.Active = 1, registry.Ref{Version: "1", Digest: m.Digest}
	b.store(t, deploySubject("m"), encode(t, d))
	if d, err := b.deployed(t, "m").Rollback("test", "test"); !errors.Is(err, registry.ErrNothing) {
		t.Errorf("%+v, %v", d, err)
	}
	if err := b.Delete(t.Context(), "m", "1"); !errors.Is(err, registry.ErrLive) {
		t.Errorf("%v", err)
	}
	d, err := b.deployed(t, "m").Undeploy("test", "test")
	if err == nil {
		err = b.Write(t.Context(), d)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Delete(t.Context(), "m", "1"); err != nil {
		t.Error(err)
	}
	if d := b.deployed(t, "m"); d.Serial != 0 || d.Deleting != (registry.Ref{}) {
		t.Errorf("%+v", d)
	}
	later := setupOn(t, b.server, func(c *registry.Config) { c.Spare = time.Nanosecond })
	if _, err := later.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if n := b.messages(t, recordStream, deploySubject("*")) + b.messages(t, recordStream, versionSubject("m", "1")) + b.metas(t) + b.chunks(t); n != 0 {
		t.Errorf("%d messages left", n)
	}
}

// TestInterruptedDelete: a deletion that ended in between is ended by the next, by a
// push and by a sweep.
func TestInterruptedDelete(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*bench, *registry.Manifest) error{
		"delete": func(b *bench, m *registry.Manifest) error { return b.Delete(t.Context(), m.Model, m.Version) },
		"push": func(b *bench, m *registry.Manifest) error {
			_, err := b.Push(t.Context(), dir(map[string][]byte{"a": []byte("a")}), version(m.Model, m.Version), nil)
			return err
		},
		"sweep": func(b *bench, _ *registry.Manifest) error { _, err := b.Sweep(t.Context()); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			m, _ := b.push(t, version("m", "1"), dir(map[string][]byte{"a": []byte("a")}))
			d := registry.Undeployed("m")
			d.Serial, d.Deleting = 1, registry.Ref{Version: "1", Digest: m.Digest}
			b.store(t, deploySubject("m"), encode(t, d))
			if err := b.deploy(t, "m"); !errors.Is(err, registry.ErrDeleting) {
				t.Errorf("%v", err)
			}
			if err := end(b, m); err != nil {
				t.Fatal(err)
			}
			if d := b.deployed(t, "m"); d.Deleting != (registry.Ref{}) {
				t.Errorf("%+v", d)
			}
			if err := b.deploy(t, "m"); (err == nil) != (name != "delete") {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestSweepRemovesGarbage of keys that are no models' and of those that nobody
// pushed, and nothing else.
func TestSweepRemovesGarbage(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.push(t, version("m", "1"), dir(map[string][]byte{"a": []byte("a")}))
	b.garbage(t, 30)
	b.store(t, deploySubject("Not_A_Model"), []byte(receipt))
	b.store(t, deploySubject("a.b"), []byte(receipt))
	b.store(t, deploySubject("m"), []byte(receipt)) // somebody pushed it
	b.store(t, deploySubject("later"), []byte(`{"format":2}`))
	b.store(t, deploySubject("own"), []byte(`{"format":1,"model":"own","phase":"steady","pinned":true}`))
	b.store(t, deploySubject("young"), nil)
	if _, err := b.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if n := b.messages(t, recordStream, deploySubject(">")); n != 4 {
		t.Errorf("%d records, 4 wanted", n)
	}
	all, _, err := b.Deployments(t.Context())
	unreadable := (*registry.UnreadableError)(nil)
	if !errors.As(err, &unreadable) || len(unreadable.Records) != 2 || len(all) != 2 || !all["own"].Pinned {
		t.Errorf("%v, %v", all, err)
	}
}
