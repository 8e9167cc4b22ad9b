package export_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// examples returns the Python blocks of docs/models.md, and the text of
// families.py.
func examples(t *testing.T) (blocks []string, families string) {
	t.Helper()
	doc, err := os.ReadFile("../../docs/models.md")
	if err != nil {
		t.Fatal(err)
	}
	code, err := os.ReadFile("families.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?ms)^```python\n(.*?)^```$").FindAllStringSubmatch(string(doc), -1) {
		blocks = append(blocks, m[1])
	}
	return blocks, string(code)
}

// TestDocsShowTheModules wants each module of families.py in docs/models.md as
// it stands, and no other there.
func TestDocsShowTheModules(t *testing.T) {
	t.Parallel()
	blocks, families := examples(t)
	shown := 0
	for _, b := range blocks {
		name, ok := strings.CutPrefix(b, "class ")
		if !ok {
			continue
		}
		shown++
		if !strings.Contains(families, "\n\n\n"+b+"\n\n") {
			t.Errorf("docs/models.md and families.py differ in class %.20s", name)
		}
	}
	if n := strings.Count(families, "\nclass "); shown != n {
		t.Errorf("%d modules are shown, there are %d", shown, n)
	}
}

// TestDocsExamples runs the Python of docs/models.md from its beginning to its
// end and wants the runtime to give PyTorch's outputs for what it exports.
func TestDocsExamples(t *testing.T) {
	t.Parallel()
	py := python(t, "torch, onnx")
	blocks, _ := examples(t)
	// The examples' own imports come first; the modules that are shown want PyTorch's and RNN.
	program := "import torch\nimport torch.nn as nn\nfrom families import RNN\ntorch.manual_seed(1)\n" + strings.Join(blocks, "\n")
	// Weights that were never trained prefer no token clearly; larger ones do.
	const train = "# train it\n"
	if strings.Count(program, train) != 1 {
		t.Fatalf("the examples do not say %q once", train)
	}
	program = strings.Replace(program, train, "\nfor p in model.parameters(): p.data *= 4\n", 1)
	dir := t.TempDir()
	file := filepath.Join(dir, "examples.py")
	if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := script(t, py, dir, file); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n, want := verify(t, filepath.Join(dir, "models")), 5; n != want {
		t.Errorf("%d models, %d wanted", n, want)
	}
}
