package cli_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestModelOnAFleet deploys versions to a worker that had never heard of the model,
// and asks them.
func TestModelOnAFleet(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	dir := fixture(t, "s2s-lstm-2layer-plain", "sounds")
	run(t, "", "model", "golden", dir, "--input", "4 11 24", "--input", "7").want(t, 0, "2 golden outputs", "")
	for _, version := range []string{"1", "2"} {
		setVersion(t, dir, version)
		s.run(t, "push", dir).want(t, 0, "sounds@"+version+" pushed", "")
	}
	cache := "CELLMQ_CACHE_DIR=" + filepath.Join(t.TempDir(), "cache")
	w := launchIn(t, []string{cache}, "worker", "--nats-url", s.url, "--admin", "", "--name", "w1", "--models", "listops,sounds")
	w.says(t, "msg=serving")
	ask := func(version string) {
		t.Helper()
		r := run(t, "", "request", "--nats-url", s.url, "sounds", "4 11 24", "--json")
		r.want(t, 0, `"version":"`+version+`"`, "")
	}
	s.run(t, "deploy", "sounds@1", "--watch", "0").want(t, 0, "sounds: 1 serves", "")
	ask("1")
	completed(t, "request --nats-url "+s.url+" ", "listops sounds")
	completed(t, "model deploy --nats-url "+s.url+" ", "sounds@1 sounds@2")
	completed(t, "model rollback --nats-url "+s.url+" ", "sounds")
	completed(t, "model show --nats-url "+s.url+" sounds@", "sounds@1 sounds@2")
	s.run(t, "deploy", "sounds@2", "--canary", "0", "--watch", "0").want(t, 0, "1 serves, 2 has 0 % of the requests", "")
	ask("1")
	s.run(t, "delete", "sounds@2").want(t, 1, "", "version is in use")
	s.run(t, "deploy", "sounds", "--canary", "100").want(t, 0, "sounds: 2 serves", "")
	ask("2")
	m := decoded[shownModel](t, s.run(t, "show", "sounds", "--json").out)
	if len(m.Workers) == 0 || m.Workers[0].Worker != "w1" {
		t.Errorf("%+v", m)
	}
	s.run(t, "rollback", "sounds").want(t, 0, "sounds: 1 serves", "")
	ask("1")
	if err := w.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	w.ends(t)
	if strings.Contains(w.stderr(), "level=ERROR") {
		t.Error("errors in the worker's log")
	}
}
