package worker_test

import (
	"sync"
	"testing"
)

// TestNewModelWithoutRestart deploys a model that a running worker has never heard
// of, and then another version of it.
func TestNewModelWithoutRestart(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	startServing(t, server, nil)
	s := newShop(t, server)
	s.pushLetters("fresh", "1", "2")
	c := newBuyer(t, connect(t, server), "me")
	for _, version := range []string{"1", "2"} {
		s.deploy("fresh", version)
		for _, path := range []string{"req", "rt"} {
			eventually(t, path+" is served in version "+version, func() bool {
				f := c.ask(path, "fresh", "a", 4)
				return f.Final != nil && f.Version == version
			})
		}
		c.spell("req", "fresh", letters)
		if v := s.reported("fresh", version, "live"); v.Golden != 1 || v.GoldenEqual != 1 || v.WeightBytes == 0 {
			t.Errorf("report %+v", v)
		}
	}
	c.spell("req", "own", letters)
}

// TestUpgradeUnderLoad goes back and forth between two versions under load: no
// request fails, and each is of one version, which its final names.
func TestUpgradeUnderLoad(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	w := startServing(t, server, nil)
	s := newShop(t, server)
	s.pushLetters("m", "1", "2")
	s.deploy("m", "1")
	s.reported("m", "1", "warm", "live")
	nc := connect(t, server)
	probe := newBuyer(t, nc, "probe")
	eventually(t, "version 1 serves", func() bool { return probe.ask("rt", "m", "a", 1).Final != nil })
	over := make(chan struct{})
	var clients sync.WaitGroup
	var mu sync.Mutex
	count := map[string]int{}
	for _, name := range []string{"c1", "c2", "c3", "c4"} {
		path := map[bool]string{true: "req", false: "rt"}[name < "c3"]
		c := newBuyer(t, nc, name)
		clients.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				v := c.spell(path, "m", letters)
				mu.Lock()
				count[v]++
				mu.Unlock()
			}
		})
	}
	for _, version := range []string{"2", "1", "2"} {
		s.deploy("m", version)
		eventually(t, "version "+version+" serves", func() bool {
			return probe.ask("rt", "m", "a", 1).Version == version
		})
	}
	close(over)
	clients.Wait()
	t.Logf("requests by version: %v", count)
	if count["1"] == 0 || count["2"] == 0 || len(count) != 2 {
		t.Errorf("requests by version: %v", count)
	}
	eventually(t, "all leave", func() bool { return w.Running() == 0 })
}
