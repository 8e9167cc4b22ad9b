package registry_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/registry"
)

const (
	storeStream  = "OBJ_CELLMQ_MODELS"
	recordStream = "KV_CELLMQ_MODELS"
	stale        = 10 * time.Second // of the locks of these tests
)

// bench is a server and a registry on it.
type bench struct {
	server *broker.Server
	nc     *nats.Conn
	js     jetstream.JetStream
	*registry.Registry
}

func setup(tb testing.TB, change func(*registry.Config)) *bench {
	tb.Helper()
	return setupOn(tb, brokertest.Server(tb), change)
}

func setupOn(tb testing.TB, s *broker.Server, change func(*registry.Config)) *bench {
	tb.Helper()
	nc, err := nats.Connect(s.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.RetryOnFailedConnect(true))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		tb.Fatal(err)
	}
	cfg := registry.Config{Conn: nc, Stale: stale}
	if change != nil {
		change(&cfg)
	}
	r, err := registry.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return &bench{server: s, nc: nc, js: js, Registry: r}
}

// random is n bytes that nothing else has.
func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	_, _ = rand.NewChaCha8(key).Read(b) // never fails
	return b
}

// dir is a model's directory.
func dir(files map[string][]byte) fstest.MapFS {
	d := fstest.MapFS{}
	for name, data := range files {
		d[name] = &fstest.MapFile{Data: data}
	}
	return d
}

func version(model, version string) registry.Manifest {
	return registry.Manifest{
		Model: model, Version: version, Family: "rnn_lm", Task: "text", Weights: "f32", Parameters: 12, Cells: []string{"lstm0", "out"}, Golden: 3,
	}
}

func (b *bench) push(tb testing.TB, m registry.Manifest, files fs.FS) (*registry.Manifest, registry.Progress) {
	tb.Helper()
	var last registry.Progress
	got, err := b.Push(tb.Context(), files, m, func(p registry.Progress) { last = p })
	if err != nil {
		tb.Fatal(err)
	}
	if last.Done != last.Total || last.Total != got.Bytes() {
		tb.Errorf("progress ended at %+v, %d bytes wanted", last, got.Bytes())
	}
	return got, last
}

// fetch fetches a version and compares it with its files.
func (b *bench) fetch(tb testing.TB, m *registry.Manifest, files fs.FS) {
	tb.Helper()
	target := filepath.Join(tb.TempDir(), "cache", m.Digest)
	var last registry.Progress
	if err := b.Fetch(tb.Context(), m, target, func(p registry.Progress) { last = p }); err != nil {
		tb.Fatal(err)
	}
	if last.Done != m.Bytes() || last.Total != m.Bytes() {
		tb.Errorf("progress ended at %+v, %d bytes wanted", last, m.Bytes())
	}
	got := os.DirFS(target)
	wanted, err := fs.ReadDir(files, ".")
	if err != nil {
		tb.Fatal(err)
	}
	have, err := fs.ReadDir(got, ".")
	if err != nil || len(have) != len(m.Files) {
		tb.Errorf("%d files, %d wanted: %v", len(have), len(m.Files), err)
	}
	for _, e := range wanted {
		if e.IsDir() || e.Name()[0] == '.' {
			continue
		}
		a, errA := fs.ReadFile(files, e.Name())
		c, errC := fs.ReadFile(got, e.Name())
		if errA != nil || errC != nil || !bytes.Equal(a, c) {
			tb.Errorf("%s: %d bytes, %d wanted: %v, %v", e.Name(), len(c), len(a), errA, errC)
		}
	}
	onlyChild(tb, filepath.Dir(target), m.Digest)
}

// onlyChild wants one entry of a directory, or none for "".
func onlyChild(tb testing.TB, parent, name string) {
	tb.Helper()
	entries, err := os.ReadDir(parent)
	if err != nil {
		tb.Fatal(err)
	}
	if name == "" && len(entries) == 0 || len(entries) == 1 && entries[0].Name() == name {
		return
	}
	tb.Errorf("directory has %v, %q wanted", entries, name)
}

// messages counts messages of a stream by a subject with wildcards.
func (b *bench) messages(tb testing.TB, stream, subject string) (n int) {
	tb.Helper()
	s, err := b.js.Stream(tb.Context(), stream)
	if err != nil {
		tb.Fatal(err)
	}
	info, err := s.Info(tb.Context(), jetstream.WithSubjectFilter(subject))
	if err != nil {
		tb.Fatal(err)
	}
	for _, count := range info.State.Subjects {
		n += int(count)
	}
	return n
}

func (b *bench) chunks(tb testing.TB) int {
	tb.Helper()
	return b.messages(tb, storeStream, "$O.CELLMQ_MODELS.C.>")
}

func (b *bench) metas(tb testing.TB) int {
	tb.Helper()
	return b.messages(tb, storeStream, "$O.CELLMQ_MODELS.M.>")
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func metaSubject(part string) string {
	return "$O.CELLMQ_MODELS.M." + base64.URLEncoding.EncodeToString([]byte(part))
}

func versionSubject(model, version string) string {
	return "$KV.CELLMQ_MODELS.version." + model + "." + base64.RawURLEncoding.EncodeToString([]byte(version))
}

// object is the record of a part.
func (b *bench) object(tb testing.TB, part string) *jetstream.ObjectInfo {
	tb.Helper()
	s, err := b.js.ObjectStore(tb.Context(), "CELLMQ_MODELS")
	if err != nil {
		tb.Fatal(err)
	}
	info, err := s.GetInfo(tb.Context(), part)
	if err != nil {
		tb.Fatal(err)
	}
	return info
}

// content is what nats.go reads of a part.
func (b *bench) content(tb testing.TB, part string) []byte {
	tb.Helper()
	s, err := b.js.ObjectStore(tb.Context(), "CELLMQ_MODELS")
	if err != nil {
		tb.Fatal(err)
	}
	data, err := s.GetBytes(tb.Context(), part)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// store puts a message on a stream.
func (b *bench) store(tb testing.TB, subject string, data []byte) {
	tb.Helper()
	if _, err := b.js.Publish(tb.Context(), subject, data); err != nil {
		tb.Fatal(err)
	}
}

// purge removes the messages of a subject.
func (b *bench) purge(tb testing.TB, stream, subject string) {
	tb.Helper()
	s, err := b.js.Stream(tb.Context(), stream)
	if err == nil {
		err = s.Purge(tb.Context(), jetstream.WithPurgeSubject(subject))
	}
	if err != nil {
		tb.Fatal(err)
	}
}

func encode(tb testing.TB, v any) []byte {
	tb.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}
