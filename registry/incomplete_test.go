package registry_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/registry"
)

// receipt is what a client can have the server put on any subject.
const receipt = `{"stream":"INFER","seq":7}`

// TestIncompletePart: a part whose record says more than there is, or nothing, is
// not fetched, and pushing again heals it.
func TestIncompletePart(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, b *bench, part string){
		"no chunks": func(t *testing.T, b *bench, part string) {
			t.Helper()
			b.purge(t, storeStream, "$O.CELLMQ_MODELS.C."+b.object(t, part).NUID)
		},
		"too few chunks": func(t *testing.T, b *bench, part string) {
			t.Helper()
			s, err := b.js.Stream(t.Context(), storeStream)
			if err != nil {
				t.Fatal(err)
			}
			m, err := s.GetLastMsgForSubject(t.Context(), "$O.CELLMQ_MODELS.C."+b.object(t, part).NUID)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.DeleteMsg(t.Context(), m.Sequence); err != nil {
				t.Fatal(err)
			}
		},
		"a chunk too many": func(t *testing.T, b *bench, part string) {
			t.Helper()
			b.store(t, "$O.CELLMQ_MODELS.C."+b.object(t, part).NUID, []byte(receipt))
		},
		"receipt": func(t *testing.T, b *bench, part string) {
			t.Helper()
			b.store(t, metaSubject(part), []byte(receipt))
		},
		"no JSON": func(t *testing.T, b *bench, part string) {
			t.Helper()
			b.store(t, metaSubject(part), []byte("{"))
		},
		"no record": func(t *testing.T, b *bench, part string) {
			t.Helper()
			b.purge(t, storeStream, metaSubject(part))
		},
		"all subjects as id": func(t *testing.T, b *bench, part string) {
			t.Helper()
			o := b.object(t, part)
			o.NUID = ">"
			b.store(t, metaSubject(part), encode(t, o))
		},
		"a link": func(t *testing.T, b *bench, part string) {
			t.Helper()
			o := b.object(t, part)
			b.store(t, metaSubject(part), fmt.Appendf(nil, `{"name":%q,"bucket":"CELLMQ_MODELS","nuid":%q,"size":%d,"chunks":%d,"digest":%q,
				"options":{"link":{"bucket":"CELLMQ_MODELS","name":"x"}}}`, part, o.NUID, o.Size, o.Chunks, o.Digest))
		},
		"other size": func(t *testing.T, b *bench, part string) {
			t.Helper()
			o := b.object(t, part)
			o.Size++
			b.store(t, metaSubject(part), encode(t, o))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			files := dir(map[string][]byte{"a": []byte("whole"), "b": random(1, registry.PartBytes+2<<20)})
			m, _ := b.push(t, version("m", "1"), files)
			spoil(t, b, m.Files[1].Parts[1])

			parent := t.TempDir()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := b.Fetch(ctx, m, filepath.Join(parent, "d"), nil)
			if !errors.Is(err, registry.ErrIncomplete) || !strings.Contains(err.Error(), m.Files[1].Parts[1]) || ctx.Err() != nil {
				t.Errorf("%v", err)
			}
			onlyChild(t, parent, "")

			if _, p := b.push(t, version("m", "1"), files); p.Skipped != m.Bytes()-2<<20 {
				t.Errorf("skipped %d of %d bytes", p.Skipped, m.Bytes())
			}
			b.fetch(t, m, files)
		})
	}
}

// rewrite replaces the chunks of a part by others of the same sizes.
func (b *bench) rewrite(t *testing.T, part string, change func(data []byte) []byte) {
	t.Helper()
	t.Helper()
	o := b.object(t, part)
	subject := "$O.CELLMQ_MODELS.C." + o.NUID
	s, err := b.js.Stream(t.Context(), storeStream)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.GetLastMsgForSubject(t.Context(), subject)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteMsg(t.Context(), m.Sequence); err != nil {
		t.Fatal(err)
	}
	b.store(t, subject, change(m.Data))
}

// TestFetchRefusesOtherBytes: those of a part of the same size, of fewer and of
// more, with as many chunks.
func TestFetchRefusesOtherBytes(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func([]byte) []byte{
		"one bit":   func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"truncated": func(b []byte) []byte { return b[:len(b)-1] },
		"empty":     func([]byte) []byte { return nil },
		"longer":    func(b []byte) []byte { return append(b, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil)
			files := dir(map[string][]byte{"a": random(1, 700<<10), "b": []byte("b")})
			m, _ := b.push(t, version("m", "1"), files)
			b.rewrite(t, m.Files[0].Parts[0], change)
			parent := t.TempDir()
			begin := time.Now()
			err := b.Fetch(t.Context(), m, filepath.Join(parent, "d"), nil)
			if !errors.Is(err, registry.ErrDigest) || !strings.Contains(err.Error(), "of a") {
				t.Errorf("%v after %v", err, time.Since(begin))
			}
			onlyChild(t, parent, "")
		})
	}
}

// TestFetchComparesWholes: parts that are right, but not those of the file or of
// the directory that the version names.
func TestFetchComparesWholes(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	files := dir(map[string][]byte{"a": []byte("a"), "b": []byte("b")})
	m, _ := b.push(t, version("m", "1"), files)
	for name, change := range map[string]func(m *registry.Manifest){
		"file":      func(m *registry.Manifest) { m.Files[0].SHA256 = m.Files[1].SHA256 },
		"part":      func(m *registry.Manifest) { m.Files[0].Parts = m.Files[1].Parts },
		"directory": func(m *registry.Manifest) { m.Digest = strings.Repeat("0", 64) },
		"name":      func(m *registry.Manifest) { m.Files[0].Name = "aa" },
	} {
		other := *m
		other.Files = append([]registry.File(nil), m.Files...)
		change(&other)
		parent := t.TempDir()
		if err := b.Fetch(t.Context(), &other, filepath.Join(parent, "d"), nil); !errors.Is(err, registry.ErrDigest) {
			t.Errorf("%s: %v", name, err)
		}
		onlyChild(t, parent, "")
	}
	other := *m
	other.Files = []registry.File{{Name: "../a", Size: 0, SHA256: sum(nil)}}
	if err := b.Fetch(t.Context(), &other, filepath.Join(t.TempDir(), "d"), nil); !errors.Is(err, registry.ErrMalformed) {
		t.Errorf("%v", err)
	}
}

// TestFetchTarget: one that is there is left as it is; two fetches into one place
// make one directory.
func TestFetchTarget(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	files := dir(map[string][]byte{"a": []byte("a")})
	m, _ := b.push(t, version("m", "1"), files)
	parent := t.TempDir()
	if err := b.Fetch(t.Context(), m, parent, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("%v", err)
	}
	target := filepath.Join(parent, "d")
	err := b.Fetch(t.Context(), m, target, func(p registry.Progress) {
		if err := b.Fetch(t.Context(), m, target, nil); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Error(err)
	}
	onlyChild(t, parent, "d")
	if data, err := os.ReadFile(filepath.Join(target, "a")); string(data) != "a" {
		t.Errorf("%q, %v", data, err)
	}
}

// TestFetchEndsWithItsContext, and leaves nothing.
func TestFetchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	m, _ := b.push(t, version("m", "1"), os.DirFS(writeParts(t, 4)))
	parent := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := b.Fetch(ctx, m, filepath.Join(parent, "d"), func(registry.Progress) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	onlyChild(t, parent, "")
}

// TestMalformedVersion: what others put on a version's key changes nothing.
func TestMalformedVersion(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	files := dir(map[string][]byte{"a": []byte("a")})
	m, _ := b.push(t, version("m", "1"), files)
	b.store(t, versionSubject("m", "1"), []byte(receipt))
	other := *m
	other.Parameters = 13
	b.store(t, versionSubject("m", "1"), encode(t, other))
	b.store(t, versionSubject("m", "2"), []byte(receipt))
	b.store(t, "$KV.CELLMQ_MODELS.version.m.===", []byte(receipt))
	b.store(t, "$KV.CELLMQ_MODELS.version.m", []byte(receipt))

	if got, err := b.Version(t.Context(), "m", "1"); err != nil || got.Parameters != m.Parameters {
		t.Errorf("%+v, %v", got, err)
	}
	if all, err := b.Versions(t.Context(), ""); err != nil || len(all) != 1 {
		t.Errorf("%d versions, %v", len(all), err)
	}
	if _, err := b.Version(t.Context(), "m", "2"); !errors.Is(err, registry.ErrNotFound) {
		t.Errorf("%v", err)
	}
	b.push(t, version("m", "1"), files)
	b.push(t, version("m", "2"), files)
	if got, err := b.Version(t.Context(), "m", "2"); err != nil || got.Digest != m.Digest {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestNoRegistry: a server where nobody has pushed says so soon.
func TestNoRegistry(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *registry.Config) { c.Timeout = patience })
	begin := time.Now()
	for name, ask := range map[string]func() error{
		"versions": func() error { _, err := b.Versions(t.Context(), ""); return err },
		"version":  func() error { _, err := b.Version(t.Context(), "m", "1"); return err },
		"delete":   func() error { return b.Delete(t.Context(), "m", "1") },
		"sweep":    func() error { _, err := b.Sweep(t.Context()); return err },
	} {
		if err := ask(); !errors.Is(err, registry.ErrNoRegistry) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if took := time.Since(begin); took >= patience { // an answer was waited for, which nobody gives
		t.Errorf("took %v", took)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, c := range []registry.Config{
		{},
		{Conn: new(nats.Conn), Prefix: "a..b"},
		{Conn: new(nats.Conn), Prefix: "a>"},
		{Conn: new(nats.Conn), Replicas: 6},
		{Conn: new(nats.Conn), StoreBytes: -1},
		{Conn: new(nats.Conn), Timeout: -1},
	} {
		if _, err := registry.New(c); err == nil {
			t.Errorf("%+v accepted", c)
		}
	}
}

// TestPrefixesAreApart: fleets on one server do not see each other's versions.
func TestPrefixesAreApart(t *testing.T) {
	t.Parallel()
	one := setup(t, nil)
	files := dir(map[string][]byte{"a": []byte("a")})
	for i, prefix := range []string{"infer", "a.b", "a_b", "a_-b"} {
		b := setupOn(t, one.server, func(c *registry.Config) { c.Prefix, c.StoreBytes = prefix, 1<<20 })
		if _, err := b.Versions(t.Context(), ""); !errors.Is(err, registry.ErrNoRegistry) {
			t.Errorf("%s: %v", prefix, err)
		}
		if _, err := b.Push(t.Context(), files, version("m", strconv.Itoa(i)), nil); err != nil {
			t.Errorf("%s: %v", prefix, err)
		}
	}
}
