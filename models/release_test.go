package models_test

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
)

// TestClosedModelServes closes models of all families, and the directories that
// their weights are mapped from, and unfolds and restores requests afterwards.
func TestClosedModelServes(t *testing.T) {
	t.Parallel()
	for _, a := range randomRequests(t, rand.New(rand.NewPCG(5, 5)), 1) {
		name := a.model.Name()
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := models.OpenDir(onDisk(t, name))
			if err != nil {
				t.Fatal(err)
			}
			a.model = load(t, dir, name)
			s := stations(t, []*models.Model{a.model}, cellrt.Shape{Executors: 1, Threads: 1})[0]
			req := unfold(t, a)
			v := s.run(t, req, nil, 1, 0)
			text := req.Text(v.tokens, 0)

			a.model.Close()
			a.model.Close()
			if err := dir.Close(); err != nil {
				t.Fatal(err)
			}
			if got := unfold(t, a); got.InputTokens != req.InputTokens || got.Text(v.tokens, 0) != text {
				t.Errorf("unfolded to %d tokens and %q, %d and %q before", got.InputTokens, got.Text(v.tokens, 0), req.InputTokens, text)
			}
			for i, c := range v.checkpoints {
				saved := req.AppendCheckpoint(nil, c)
				_, got, err := a.model.Restore(a.input, a.params, saved)
				if err != nil || got.Nodes != c.Nodes || !slices.Equal(got.State, c.State) {
					t.Errorf("checkpoint %d: %v", i, err)
				}
			}
			if len(v.checkpoints) == 0 && !a.searches() {
				t.Error("no checkpoint to restore")
			}
			open := load(t, directory(t, name), name)
			if got, want := a.model.Program().Layout.Size(), open.Program().Layout.Size(); got != want || want == 0 {
				t.Errorf("the layout has %d values, %d when open", got, want)
			}
			if !slices.Equal(a.model.Cells(), open.Cells()) || len(open.Cells()) == 0 || a.model.Parameters() != open.Parameters() {
				t.Errorf("cells %v of %d parameters, %v of %d when open", a.model.Cells(), a.model.Parameters(), open.Cells(), open.Parameters())
			}
			for _, m := range []*models.Model{a.model, a.model.WithWeights(cellrt.Int8)} {
				if got := panicOf(func() { _, _ = s.runtime.Load(m.Program(), 1) }); !strings.Contains(got, "program "+name+", which is closed") {
					t.Errorf("load of a closed program with %v: panic %q", m.Weights(), got)
				}
			}
		})
	}
}

// panicOf returns the text that do panics with; empty when it does not.
func panicOf(do func()) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprint(v)
		}
	}()
	do()
	return ""
}

// TestDigestEqualsLoad compares the digest of directories of all families, read,
// mapped and in memory, with what Load says.
func TestDigestEqualsLoad(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, m := range fixtures(t, "") {
		at := onDisk(t, m.Name())
		mapped := open(t, at)
		inMemory := directory(t, m.Name())
		inMemory[".hidden"] = inMemory["config.json"]
		inMemory["sub/file"] = inMemory["config.json"]
		for i, fsys := range []fs.FS{mapped, inMemory, os.DirFS(at)} {
			got, err := models.Digest(fsys)
			if err != nil || got != m.Digest() {
				t.Errorf("%s %d: %s, %v, Load says %s", m.Name(), i, got, err, m.Digest())
			}
		}
		if before, dup := seen[m.Digest()]; dup {
			t.Errorf("%s has the digest of %s", m.Name(), before)
		}
		seen[m.Digest()] = m.Name()
	}
	if _, err := models.Digest(open(t, t.TempDir())); err != nil {
		t.Errorf("empty directory: %v", err)
	}
}
