package modeldir_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"golang.org/x/sys/unix"

	"github.com/cellmq/cellmq/internal/modeldir"
)

func TestValidName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"config.json": true, "Wörter 1.json": true, strings.Repeat("n", 255): true,
		"": false, ".": false, "..": false, ".hidden": false, "a/b": false, "../a": false, "/a": false, `a\b`: false,
		"a\nb": false, "a\x00": false, "a\x1b[2J": false, "a\u202eb": false, "a\xff": false, strings.Repeat("n", 256): false,
	} {
		if got := modeldir.ValidName(name); got != want {
			t.Errorf("%.20q: %v", name, got)
		}
	}
}

// open opens a directory until the test ends.
func open(t *testing.T, path string) *modeldir.Dir {
	t.Helper()
	d, err := modeldir.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestRefused has what a directory from a stranger may hold. A named pipe that was
// opened as a file would wait for somebody to write.
func TestRefused(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := func(target string) func(at string) error {
		return func(at string) error { return os.Symlink(target, at) }
	}
	file := func(at string) error { return os.WriteFile(at, nil, 0o600) }
	long := func(bytes int64) func(at string) error {
		return func(at string) error { return errors.Join(file(at), os.Truncate(at, bytes)) }
	}
	for _, tt := range []struct {
		file string
		make func(at string) error
		want string
	}{
		{"absolute", link(outside), `"absolute": symbolic link: `},
		{"upwards", link("../../secret"), `"upwards": symbolic link: `},
		{"directory", link(filepath.Dir(outside)), `"directory": symbolic link: `},
		{"device", link(os.DevNull), `"device": symbolic link: `},
		{"nowhere", link("none"), `"nowhere": symbolic link: `},
		{"itself", link("itself"), `"itself": symbolic link: `},
		{"pipe", func(at string) error { return unix.Mkfifo(at, 0o600) }, `"pipe": a named pipe, a regular file wanted`},
		{"socket", func(at string) error { return unix.Mknod(at, unix.S_IFSOCK|0o600, 0) }, `"socket": a socket, a regular file wanted`},
		{`a\b`, file, `"a\\b": a name of at most 255 bytes`},
		{"a\x1b[2J", file, `"a\x1b[2J": a name of at most 255 bytes`},
		{"a\xff", file, `"a\xff": a name of at most 255 bytes`},
		{"large", long(modeldir.MaxFileBytes + 1), `"large": 4294967297 bytes, at most 4294967296 wanted`},
		{"more", long(modeldir.MaxFileBytes), `"two": more than 5368709120 bytes with the files before it`},
	} {
		t.Run(tt.file, func(t *testing.T) {
			t.Parallel()
			at := t.TempDir()
			if err := tt.make(filepath.Join(at, tt.file)); err != nil {
				t.Fatal(err)
			}
			if tt.file == "more" {
				if err := long(2 << 30)(filepath.Join(at, "two")); err != nil {
					t.Fatal(err)
				}
			}
			_, err := modeldir.List(open(t, at))
			e, ok := errors.AsType[*modeldir.Error](err)
			if !ok || !strings.Contains(err.Error(), tt.want) || e.File != tt.file && tt.file != "more" {
				t.Errorf("%v, %s wanted", err, tt.want)
			}
		})
	}
}

// TestLinksAreExplained has what a cache of downloads looks like, links to files
// that lie beside the directory: who opens, looks at or lists them reads what helps.
func TestLinksAreExplained(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	snapshot := filepath.Join(at, "snapshots", "1")
	err := errors.Join(os.MkdirAll(snapshot, 0o700), os.Mkdir(filepath.Join(at, "blobs"), 0o700),
		os.WriteFile(filepath.Join(at, "blobs", "0123"), []byte("{}"), 0o600),
		os.Symlink("../../blobs/0123", filepath.Join(snapshot, "config.json")))
	if err != nil {
		t.Fatal(err)
	}
	d := open(t, snapshot)
	_, opened := d.Open("config.json")
	_, looked := d.Stat("config.json")
	_, listed := modeldir.List(d)
	for what, err := range map[string]error{"open": opened, "stat": looked, "list": listed} {
		if err == nil || strings.Count(err.Error(), "symbolic link") != 1 || strings.Count(err.Error(), "cp -rL") != 1 {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := d.Open("none"); !errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), "link") {
		t.Errorf("no file: %v", err)
	}
	copied := filepath.Join(at, "copy") // what 'cp -rL' makes
	if err := errors.Join(os.Mkdir(copied, 0o700), os.WriteFile(filepath.Join(copied, "config.json"), []byte("{}"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if files, err := modeldir.List(open(t, copied)); err != nil || len(files) != 1 {
		t.Errorf("a copy: %v, %v", files, err)
	}
}

// TestOpenNeverWaits opens what was no regular file after it was listed.
func TestOpenNeverWaits(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(at, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := open(t, at)
	for name, want := range map[string]string{"pipe": "a named pipe", "../x": "invalid argument", "none": "no such file"} {
		if _, err := d.Open(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := modeldir.Open(filepath.Join(at, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	if _, err := modeldir.Open(filepath.Join(at, "pipe")); err == nil {
		t.Error("a named pipe was opened as a directory")
	}
}

func TestTooManyFiles(t *testing.T) {
	t.Parallel()
	files := fstest.MapFS{".hidden": {}, "sub/file": {}}
	for i := range modeldir.MaxFiles {
		files[fmt.Sprintf("f%02d", i)] = &fstest.MapFile{}
	}
	if got, err := modeldir.List(files); err != nil || len(got) != modeldir.MaxFiles {
		t.Errorf("%d files, %v", len(got), err)
	}
	files["last"] = &fstest.MapFile{}
	if _, err := modeldir.List(files); err == nil || !strings.Contains(err.Error(), `"last": more than 64 files`) {
		t.Errorf("%v", err)
	}
}

// TestLinksWithin follows those that stay in the directory, as Kubernetes makes
// them of a volume.
func TestLinksWithin(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	if err := errors.Join(
		os.Mkdir(filepath.Join(at, "..2026"), 0o700),
		os.WriteFile(filepath.Join(at, "..2026", "config.json"), []byte("{}"), 0o600),
		os.Symlink("..2026", filepath.Join(at, "..data")),
		os.Symlink("..data/config.json", filepath.Join(at, "config.json")),
	); err != nil {
		t.Fatal(err)
	}
	d := open(t, at)
	files, err := modeldir.List(d)
	if err != nil || len(files) != 1 || files[0] != (modeldir.File{Name: "config.json", Size: 2}) {
		t.Fatalf("%v, %v", files, err)
	}
	if b, err := fs.ReadFile(d, "config.json"); err != nil || string(b) != "{}" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestDigest compares the digest with the formula.
func TestDigest(t *testing.T) {
	t.Parallel()
	d := modeldir.NewDigest()
	d.File("a", 2)
	_, _ = io.WriteString(d, "xy")
	d.File("bc", 0)
	sum := sha256.Sum256([]byte("\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02axy" +
		"\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00bc"))
	if got, want := d.Sum(), hex.EncodeToString(sum[:]); got != want {
		t.Errorf("%s, %s wanted", got, want)
	}
}
