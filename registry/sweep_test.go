package registry_test

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/cellmq/cellmq/registry"
)

// TestDeleteKeepsSharedParts: a version goes with what only it has.
func TestDeleteKeepsSharedParts(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	shared := random(1, registry.PartBytes)
	first := dir(map[string][]byte{"a": append(shared[:len(shared):len(shared)], "one"...)})
	second := dir(map[string][]byte{"a": append(shared[:len(shared):len(shared)], "two"...)})
	one, _ := b.push(t, version("m", "1"), first)
	two, _ := b.push(t, version("other", "2"), second)
	if err := b.Delete(t.Context(), "m", "1"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Version(t.Context(), "m", "1"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("%v", err)
	}
	if err := b.Delete(t.Context(), "m", "1"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("%v", err)
	}
	if b.metas(t) != 2 || b.messages(t, storeStream, metaSubject(one.Files[0].Parts[1])) != 0 || b.chunks(t) != 17 {
		t.Errorf("%d parts of %d chunks, 2 of 17 wanted", b.metas(t), b.chunks(t))
	}
	b.fetch(t, two, second)

	b.push(t, version("m", "1"), first) // the name is free again
	for _, v := range []*registry.Manifest{one, two} {
		if err := b.Delete(t.Context(), v.Model, v.Version); err != nil {
			t.Fatal(err)
		}
	}
	if b.metas(t) != 0 || b.chunks(t) != 0 {
		t.Errorf("%d parts of %d chunks left", b.metas(t), b.chunks(t))
	}
}

// orphans makes what interrupted pushes leave: a whole part, a part without chunks,
// chunks without a part, and records that nothing can be read from.
func (b *bench) orphans(t *testing.T) {
	t.Helper()
	m, _ := b.push(t, version("gone", "1"), dir(map[string][]byte{"a": []byte("orphan"), "b": []byte("hollow")}))
	b.purge(t, storeStream, "$O.CELLMQ_MODELS.C."+b.object(t, m.Files[1].Parts[0]).NUID)
	b.purge(t, recordStream, versionSubject("gone", "1"))
	b.store(t, "$O.CELLMQ_MODELS.C.chunks", []byte("chunks"))
	b.store(t, metaSubject("x"), []byte(receipt))
	b.store(t, "$O.CELLMQ_MODELS.M.===", []byte(receipt))
}

func TestSweepSparesYoungParts(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	files := dir(map[string][]byte{"a": []byte("a"), "c": random(1, registry.PartBytes+1)})
	m, _ := b.push(t, version("m", "1"), files)
	chunks, metas := b.chunks(t), b.metas(t)
	b.orphans(t)
	if b.chunks(t) != chunks+2 || b.metas(t) != metas+4 {
		t.Fatalf("%d chunks, %d records", b.chunks(t), b.metas(t))
	}
	if freed, err := b.Sweep(t.Context()); err != nil || freed != 0 {
		t.Errorf("%d bytes, %v", freed, err)
	}
	if b.chunks(t) != chunks+2 || b.metas(t) != metas+4 {
		t.Errorf("young ones went: %d chunks, %d records", b.chunks(t), b.metas(t))
	}
	old := setupOn(t, b.server, func(c *registry.Config) { c.Spare = time.Nanosecond })
	if freed, err := old.Sweep(t.Context()); err != nil || freed <= 0 {
		t.Errorf("%d bytes, %v", freed, err)
	}
	if b.chunks(t) != chunks || b.metas(t) != metas {
		t.Errorf("%d chunks, %d records left, %d and %d wanted", b.chunks(t), b.metas(t), chunks, metas)
	}
	b.fetch(t, m, files)
}

// TestSweepNeedsAllVersions: parts of a version that this cellmq cannot read stay.
func TestSweepNeedsAllVersions(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *registry.Config) { c.Spare = time.Nanosecond })
	files := dir(map[string][]byte{"a": []byte("a")})
	m, _ := b.push(t, version("m", "1"), files)
	b.purge(t, recordStream, versionSubject("m", "1"))
	newer := *m
	newer.Format = 2
	b.store(t, versionSubject("m", "1"), encode(t, newer))
	if _, err := b.Sweep(t.Context()); !errors.Is(err, registry.ErrMalformed) || !strings.Contains(err.Error(), "m@1") {
		t.Errorf("%v", err)
	}
	b.fetch(t, m, files)
	if err := b.Delete(t.Context(), "m", "1"); err != nil {
		t.Error(err)
	}
	if n := b.metas(t); n != 0 {
		t.Errorf("%d parts left", n)
	}
}

// TestGarbageAmongVersions: records that no cellmq wrote, and those of keys that were
// purged, keep nobody from deleting and sweeping.
func TestGarbageAmongVersions(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *registry.Config) { c.Spare = time.Nanosecond })
	b.push(t, version("m", "1"), dir(map[string][]byte{"a": []byte("a")}))
	for subject, data := range map[string]string{
		"$KV.CELLMQ_MODELS.version.x":           receipt,
		"$KV.CELLMQ_MODELS.version.m.MQ.MQ":     receipt,
		"$KV.CELLMQ_MODELS.version.Not_A.MQ":    receipt,
		"$KV.CELLMQ_MODELS.version.m._w":        "{", // "\xff"
		versionSubject("m", "garbage"):          receipt,
		versionSubject("m", "purged"):           "",
		versionSubject("made-up", "of another"): `{"format":1,"model":"m"}`,
	} {
		b.store(t, subject, []byte(data))
	}
	if err := b.Delete(t.Context(), "m", "1"); err != nil {
		t.Error(err)
	}
	if _, err := b.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if n := b.metas(t); n != 0 {
		t.Errorf("%d parts left", n)
	}
}

// TestDeleteRefuses what is deployed, pinned or loaded.
func TestDeleteRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	files := dir(map[string][]byte{"a": []byte("a")})
	m, _ := b.push(t, version("m", "1"), files)
	const deploy, report = "$KV.CELLMQ_MODELS.deploy.m", "$KV.CELLMQ_WORKERS.w1"
	role := func(phase, name string) string {
		return fmt.Sprintf(`{"format":1,"model":"m","phase":%q,%q:{"version":"1","digest":%q}}`, phase, name, m.Digest)
	}
	state := func(name string) string {
		return fmt.Sprintf(`{"format":1,"worker":"w1","models":[{"model":"m","versions":[{"version":"1","digest":%q,"state":%q}]}]}`, m.Digest, name)
	}
	for _, c := range []struct {
		subject, record, text string
		err                   error
	}{
		{deploy, receipt, `cannot be read: ["m"]`, registry.ErrMalformed}, // and nobody knows what it was
		{deploy, role("steady", "active"), "active", registry.ErrLive},
		{deploy, role("loading", "next"), "next", registry.ErrLive},
		{deploy, role("watching", "previous"), "previous", registry.ErrLive},
		{deploy, receipt, "previous", registry.ErrLive}, // which is the last that can be read
		{deploy, `{"format":1,"model":"m","phase":"steady","pinned":true}`, "m", registry.ErrPinned},
		{deploy, `{"format":2,"model":"m"}`, `cannot be read: ["m"]`, registry.ErrMalformed},
		{deploy, `{"format":1,"model":"m","phase":"steady","serial":1}`, "", nil},
		{report, state("live"), "w1", registry.ErrHeld},
		{report, state("draining"), "w1", registry.ErrHeld},
		{report, state("loading"), "w1 (loading)", registry.ErrHeld},
	} {
		b.store(t, c.subject, []byte(c.record))
		if c.err == nil {
			continue
		}
		if err := b.Delete(t.Context(), "m", "1"); !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", c.record, err)
		}
		b.fetch(t, m, files)
	}
	b.store(t, report, []byte(state("cold")))
	if err := b.Delete(t.Context(), "m", "1"); err != nil {
		t.Error(err)
	}
	if err := b.Fetch(t.Context(), m, t.TempDir()+"/d", nil); !errors.Is(err, registry.ErrIncomplete) || errors.Is(err, fs.ErrExist) {
		t.Errorf("%v", err)
	}
}
