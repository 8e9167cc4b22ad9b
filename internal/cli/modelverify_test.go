package cli_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// fixtures are models of each family, by directory.
func fixtures(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join("..", "..", "models", "testdata", "fixtures"))
	if err != nil || len(entries) < 9 {
		t.Fatal(entries, err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// goldenArgs are inputs that a fixture knows.
func goldenArgs(which string) []string {
	if which == "tree-h29" {
		return []string{"--input", "( t3 ( t0 t1 ) )", "--input", "t3"}
	}
	return []string{"--input", "3 1 4 1 5", "--input", "2"}
}

// verified is what programs read of verify.
type verified struct {
	Passed, SelfMade bool
	Golden           int
	Runs             []struct {
		Weights           string
		Cases, Equal      int
		Passed            bool
		TokensPerSecond   float64 `json:"tokens_per_second"`
		Mismatches        []struct{ Line int }
		Seconds, LoadTime float64
	}
}

// rewrite replaces a file by what edit makes of it.
func rewrite(t *testing.T, path string, edit func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, edit(b), 0o600); err != nil {
		t.Fatal(err)
	}
}

// header changes the header of a weights file.
func header(t *testing.T, file []byte, edit func(map[string]any)) []byte {
	t.Helper()
	size := binary.LittleEndian.Uint64(file)
	var h map[string]any
	if err := json.Unmarshal(file[8:8+size], &h); err != nil {
		t.Fatal(err)
	}
	edit(h)
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	for len(text)%8 != 0 {
		text = append(text, ' ')
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return append(append(out, text...), file[8+size:]...)
}

// TestModelVerify records, verifies and damages models of each family.
func TestModelVerify(t *testing.T) {
	t.Parallel()
	for _, which := range fixtures(t) {
		t.Run(which, func(t *testing.T) {
			t.Parallel()
			dir := fixture(t, which, "m")
			run(t, "", "model", "verify", dir).want(t, 0, "passed", "no golden outputs")
			run(t, "", append([]string{"model", "golden", dir}, goldenArgs(which)...)...).want(t, 0, "2 golden outputs", "")
			r := run(t, "", "model", "verify", dir)
			r.want(t, 0, "2 self-made", "")
			r.want(t, 0, "2 of 2 equal", "")
			if r.err != "" {
				t.Errorf("stderr %s", r.err)
			}
			v := decoded[verified](t, run(t, "", "model", "verify", dir, "--json", "--weights", "bf16").out)
			if len(v.Runs) != 2 || v.Runs[0].Weights != "f32" || !v.Runs[0].Passed || v.Runs[1].Weights != "bf16" || v.Runs[1].Cases != 2 {
				t.Errorf("%+v", v)
			}
			testDamaged(t, which, dir)
		})
	}
}

// testDamaged verifies damaged copies of a model whose golden outputs name its
// weights.
func testDamaged(t *testing.T, which, sound string) {
	t.Helper()
	for name, tc := range map[string]struct {
		edit func([]byte) []byte
		want string
	}{
		"bit":   {func(b []byte) []byte { b[len(b)-7] ^= 1; return b }, `weights_sha256.*[0-9a-f]{64}.*[0-9a-f]{64}`},
		"short": {func(b []byte) []byte { return b[:len(b)-5] }, `model\.safetensors`},
		"shape": {func(b []byte) []byte {
			return header(t, b, func(h map[string]any) {
				for name, v := range h {
					tensor, ok := v.(map[string]any)
					if !ok || name == "__metadata__" {
						continue
					}
					if shape, ok := tensor["shape"].([]any); ok && len(shape) == 2 {
						shape[0], shape[1] = shape[1], shape[0]
						if shape[0] == shape[1] {
							continue
						}
						return
					}
				}
			})
		}, `model\.safetensors: tensor \S+: shape \[\d+ \d+\], \[\d+ \d+\] wanted`},
		"extra": {func(b []byte) []byte {
			return header(t, b, func(h map[string]any) {
				h["surplus"] = map[string]any{"dtype": "F32", "shape": []int{0}, "data_offsets": []int{len(b), len(b)}}
			})
		}, `surplus`},
		"hostile": {func(b []byte) []byte { return append(bytes.Repeat([]byte{0xff}, 8), b[8:]...) }, `model\.safetensors`},
	} {
		dir := filepath.Join(t.TempDir(), "m")
		if err := os.CopyFS(dir, os.DirFS(sound)); err != nil {
			t.Fatal(err)
		}
		rewrite(t, filepath.Join(dir, "model.safetensors"), tc.edit)
		r := run(t, "", "model", "verify", dir)
		if r.code != 1 || r.out != "" || !regexp.MustCompile(tc.want).MatchString(r.err) {
			t.Errorf("%s, %s: exit code %d, stdout %s, stderr %s, want %s", which, name, r.code, r.out, r.err, tc.want)
		}
	}
}

// TestModelMismatches shows some of many golden outputs that differ.
func TestModelMismatches(t *testing.T) {
	t.Parallel()
	dir := fixture(t, "s2s-lstm-2layer-plain", "m")
	var inputs strings.Builder
	for i := range 25 {
		inputs.WriteString("\n" + strconv.Itoa(3+i) + " 7 9\n")
	}
	run(t, inputs.String(), "model", "golden", dir, "--inputs", "-", "--max-tokens", "5", "--json").want(t, 0, `"golden":25`, "")
	run(t, "", "model", "verify", dir).want(t, 0, "25 of 25 equal", "")
	rewrite(t, filepath.Join(dir, "golden.jsonl"), func(b []byte) []byte {
		return regexp.MustCompile(`"logprob":-`).ReplaceAll(b, []byte(`"logprob":-1`))
	})
	r := run(t, "", "model", "verify", dir)
	r.want(t, 1, "0 of 25 equal", "")
	r.want(t, 1, "line 20: logprob is ", "")
	r.want(t, 1, "and 5 more", "")
	r.want(t, 1, "result  refused", "")
	v := decoded[verified](t, run(t, "", "model", "verify", dir, "--json").out)
	if v.Passed || len(v.Runs) != 1 || v.Runs[0].Equal != 0 || len(v.Runs[0].Mismatches) != 20 || v.Runs[0].Mismatches[19].Line != 20 {
		t.Errorf("%+v", v)
	}
	v = decoded[verified](t, run(t, "", "model", "verify", dir, "--json", "--weights", "int8").out)
	if v.Passed || len(v.Runs) != 2 || v.Runs[0].Passed {
		t.Errorf("%+v", v)
	}
}

// TestModelGolden does not replace golden outputs unasked, and leaves them when the
// new ones cannot be had.
func TestModelGolden(t *testing.T) {
	t.Parallel()
	dir := fixture(t, "lm-lstm-2x37", "m")
	path := filepath.Join(dir, "golden.jsonl")
	run(t, "", "model", "golden", dir, "--input", "1 2", "--input", "53").want(t, 1, "", "golden output 2")
	if _, err := os.Stat(path); err == nil {
		t.Error("golden outputs of which one failed")
	}
	run(t, "", "model", "golden", dir, "--input", "1 2").want(t, 0, "1 golden", "")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	run(t, "", "model", "golden", dir, "--input", "3").want(t, 1, "", "golden.jsonl is there (--force replaces it)")
	run(t, "", "model", "golden", dir, "--input", "53", "--force").want(t, 1, "", "53")
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("%s, %v", after, err)
	}
	rewrite(t, filepath.Join(dir, "model.safetensors"), func(b []byte) []byte { b[len(b)-6] ^= 1; return b })
	run(t, "", "model", "verify", dir).want(t, 1, "", "weights_sha256")
	run(t, "", "model", "golden", dir, "--input", "3", "--force", "--max-tokens", "4").want(t, 0, "1 golden", "")
	run(t, "", "model", "verify", dir).want(t, 0, "1 of 1 equal", "")
	left, err := filepath.Glob(filepath.Join(dir, ".golden-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
