package models_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/cellmq/cellmq/models"
)

func TestLoad(t *testing.T) {
	t.Parallel()
	dir := directory(t, "s2s-lstm-bi-attn")
	configure(t, dir, map[string]any{"version": "2024-10", "task": "noise", "max_source_length": 15})
	m := load(t, dir, "bi")
	if m.Name() != "bi" || m.Version() != "2024-10" || m.Task() != "noise" || m.Family() != "rnn_seq2seq" {
		t.Errorf("got %s %s %s %s", m.Name(), m.Version(), m.Task(), m.Family())
	}
	if want := (models.Limits{MaxInputTokens: 15, MaxTokens: 20}); m.Limits() != want {
		t.Errorf("limits %+v, want %+v", m.Limits(), want)
	}
	if want := 57460 / 4; m.Parameters() != want {
		t.Errorf("%d parameters, want %d", m.Parameters(), want)
	}
	if m.Program().Name != "bi" || len(m.Program().Cells) != 4 {
		t.Errorf("program %s has %d cells", m.Program().Name, len(m.Program().Cells))
	}
	plain := load(t, directory(t, "s2s-gru-plain"), "g")
	if plain.Version() != "1" || plain.Limits().MaxInputTokens != 256 {
		t.Errorf("defaults are version %s and %+v", plain.Version(), plain.Limits())
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	set := func(changes map[string]any) func(*testing.T, fstest.MapFS) {
		return func(t *testing.T, dir fstest.MapFS) { t.Helper(); configure(t, dir, changes) }
	}
	file := func(name, text string) func(*testing.T, fstest.MapFS) {
		return func(_ *testing.T, dir fstest.MapFS) { dir[name] = &fstest.MapFile{Data: []byte(text)} }
	}
	remove := func(name string) func(*testing.T, fstest.MapFS) {
		return func(_ *testing.T, dir fstest.MapFS) { delete(dir, name) }
	}
	characters := map[string]any{"type": "characters", "vocab": "v.json"}
	tests := []struct {
		name  string
		spoil func(*testing.T, fstest.MapFS)
		want  string
	}{
		{"no configuration", remove("config.json"), "config.json: "},
		{"no weights", remove("model.safetensors"), "model.safetensors: "},
		{"configuration is no JSON", file("config.json", "{"), "config.json: unexpected end"},
		{"large configuration", file("config.json", strings.Repeat(" ", 1<<20+1)), "config.json: 1048577 bytes, a file of at most 1048576 wanted"},
		{"wrong type", set(map[string]any{"num_layers": "two"}), "num_layers"},
		{"no family", set(map[string]any{"model_type": nil}), `config.json: model_type: "", one of rnn_lm, rnn_seq2seq, rnn_classifier, tree_lstm wanted`},
		{"unknown family", set(map[string]any{"model_type": "gpt"}), `config.json: model_type: "gpt", one of rnn_lm, rnn_seq2seq, rnn_classifier, tree_lstm wanted`},
		{"size out of bounds", set(map[string]any{"num_layers": 99, "embedding_size": -1}), "num_layers: 99, 1 to 16 wanted\nembedding_size: -1, 1 to 8192 wanted"},
		{"long version", set(map[string]any{"version": strings.Repeat("1", 65)}), "version, task: at most 64 bytes wanted"},
		{"version that is no header", set(map[string]any{"version": "1\n"}), `version: "1\n", printable ASCII wanted`},
		{"no tokenizer", set(map[string]any{"tokenizer": nil}), "source_tokenizer: missing"},
		{"no target tokenizer", set(map[string]any{"tokenizer": nil, "source_tokenizer": "ids"}), "target_tokenizer: missing"},
		{"unknown tokenizer", set(map[string]any{"tokenizer": "bpe"}), `source_tokenizer: type "bpe"`},
		{"no vocabulary file", set(map[string]any{"source_tokenizer": characters}), "v.json: "},
		{"vocabulary outside", set(map[string]any{"source_tokenizer": map[string]any{"type": "characters", "vocab": "../v"}}), "source_tokenizer.vocab: "},
		{"unknown segment", set(map[string]any{"segment": "lines"}), `segment: "lines", whitespace or nothing wanted`},
		{"ids in segments", set(map[string]any{"segment": "whitespace"}), "segment: only characters can be segmented"},
		{"weights are no safetensors", file("model.safetensors", "hello, weights"), "model.safetensors: safetensors header length"},
		{"other sizes", set(map[string]any{"decoder_hidden_size": 25}), "tensor decoder.bias_ih_l0: shape [104], [100] wanted"},
		{"golden is no JSON", file("golden.jsonl", "{}\n{"), "golden.jsonl: line 2: "},
		{"golden has two objects in a line", file("golden.jsonl", `{"input":"a"} {"input":"b"}`), "golden.jsonl: line 1: "},
		{"golden has an unknown key", file("golden.jsonl", `{"inputs":"a"}`), "golden.jsonl: line 1: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := directory(t, "s2s-lstm-bi-attn")
			tt.spoil(t, dir)
			_, err := models.Load(dir, "m")
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.HasPrefix(err.Error(), "load model m: ") {
				t.Fatalf("got %v, want %s", err, tt.want)
			}
			if _, ok := errors.AsType[*models.ConfigError](err); !ok {
				t.Errorf("%v is no ConfigError", err)
			}
		})
	}
}

func TestModelNames(t *testing.T) {
	t.Parallel()
	dir := directory(t, "s2s-gru-plain")
	for name, ok := range map[string]bool{
		"a": true, "g2p-en": true, strings.Repeat("x", 64): true,
		"": false, strings.Repeat("x", 65): false, "G2P": false, "a.b": false, "a b": false, "é": false, "a/b": false, "*": false,
	} {
		if _, err := models.Load(dir, name); (err == nil) != ok {
			t.Errorf("name %q: %v", name, err)
		}
	}
}

func TestDigest(t *testing.T) {
	t.Parallel()
	digest := func(change func(fstest.MapFS)) string {
		dir := directory(t, "s2s-gru-plain")
		change(dir)
		return load(t, dir, "m").Digest()
	}
	base := digest(func(fstest.MapFS) {})
	if len(base) != 64 {
		t.Errorf("digest %q", base)
	}
	same := map[string]func(fstest.MapFS){
		"again":         func(fstest.MapFS) {},
		"hidden file":   func(d fstest.MapFS) { d[".cache"] = &fstest.MapFile{Data: []byte("x")} },
		"sub-directory": func(d fstest.MapFS) { d["sub/file"] = &fstest.MapFile{Data: []byte("x")} },
	}
	for name, change := range same {
		if got := digest(change); got != base {
			t.Errorf("%s: another digest", name)
		}
	}
	seen := map[string]string{base: "base"}
	other := map[string]func(fstest.MapFS){
		"file":         func(d fstest.MapFS) { d["card.md"] = &fstest.MapFile{Data: []byte("ab")} },
		"other name":   func(d fstest.MapFS) { d["card.mda"] = &fstest.MapFile{Data: []byte("b")} },
		"empty file":   func(d fstest.MapFS) { d["card.md"] = &fstest.MapFile{} },
		"one more bit": func(d fstest.MapFS) { b := d["model.safetensors"].Data; b[len(b)-1] ^= 1 },
		"configuration": func(d fstest.MapFS) {
			d["config.json"].Data = append(d["config.json"].Data, '\n')
		},
	}
	for name, change := range other {
		got := digest(change)
		if before, dup := seen[got]; dup {
			t.Errorf("%s has the digest of %s", name, before)
		}
		seen[got] = name
	}
}

func TestLoadDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	copyTo := func(name, fixture string) {
		if err := os.CopyFS(filepath.Join(dir, name), directory(t, fixture)); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := models.LoadDir(dir); err != nil || len(got) != 0 {
		t.Errorf("empty: %v, %v", got, err)
	}
	copyTo("zz", "s2s-gru-plain")
	copyTo("aa", "s2s-lstm-bi-attn")
	if err := os.MkdirAll(filepath.Join(dir, "not-a-model"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "README"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := models.LoadDir(dir)
	if err != nil || len(got) != 2 || got[0].Name() != "aa" || got[1].Name() != "zz" {
		t.Fatalf("got %v, %v", got, err)
	}
	copyTo("Bad_Name", "s2s-gru-plain")
	got, err = models.LoadDir(dir)
	if err == nil || !strings.Contains(err.Error(), "Bad_Name") || len(got) != 2 {
		t.Errorf("with a bad name: %v, %v", got, err)
	}
	if _, err := models.LoadDir(filepath.Join(dir, "nowhere")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

// TestHiddenNames has what editors and tools leave in a directory,
// which neither changes a model nor keeps it from being loaded.
func TestHiddenNames(t *testing.T) {
	t.Parallel()
	link := func(target string) func(t *testing.T, at string) {
		return func(t *testing.T, at string) {
			t.Helper()
			if err := os.Symlink(target, at); err != nil {
				t.Skip(err)
			}
		}
	}
	hidden := map[string]func(t *testing.T, at string){
		"dangling link": link("user@host.1234:1700000000"),
		"looping link":  link(".hidden"),
		"link upwards":  link(".."),
		"file": func(t *testing.T, at string) {
			t.Helper()
			if err := os.WriteFile(at, []byte("x"), 0); err != nil {
				t.Fatal(err)
			}
		},
		"model": func(t *testing.T, at string) {
			t.Helper()
			if err := os.CopyFS(at, directory(t, "s2s-gru-plain")); err != nil {
				t.Fatal(err)
			}
		},
		"broken model": func(t *testing.T, at string) {
			t.Helper()
			if err := os.CopyFS(at, fstest.MapFS{"config.json": {Data: []byte("{")}}); err != nil {
				t.Fatal(err)
			}
		},
	}
	want := load(t, directory(t, "s2s-gru-plain"), "m").Digest()
	for name, put := range hidden {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			model := filepath.Join(dir, "m")
			if err := os.CopyFS(model, directory(t, "s2s-gru-plain")); err != nil {
				t.Fatal(err)
			}
			put(t, filepath.Join(model, ".hidden"))
			put(t, filepath.Join(dir, ".hidden"))
			got, err := models.LoadDir(dir)
			if err != nil || len(got) != 1 || got[0].Digest() != want {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
}

// TestLoadDirNamesWhatItCannotRead has a model whose configuration is there but
// cannot be opened: to leave it out without a word would serve less than asked.
func TestLoadDirNamesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "looping"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("config.json", filepath.Join(dir, "looping", "config.json")); err != nil {
		t.Skip(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "README"), []byte("not a model"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	found, err := models.LoadDir(dir)
	if err == nil || !strings.Contains(err.Error(), "looping") || strings.Contains(err.Error(), "README") || len(found) > 0 {
		t.Errorf("%d models, %v, want an error about looping alone", len(found), err)
	}
}
