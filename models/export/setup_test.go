package export_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
	"github.com/cellmq/cellmq/models/internal/runner"
)

// python returns an interpreter that has the modules, and skips the test where
// there is none: the first on the PATH, or the system's own.
func python(t *testing.T, modules string) string {
	t.Helper()
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		if exec.CommandContext(t.Context(), path, "-c", "import "+modules).Run() == nil {
			return path
		}
	}
	t.Skipf("no python3 that can import %s (Debian packages python3-torch, python3-onnx)", modules)
	return ""
}

// script runs a script with arguments in dir, with this folder's modules at
// hand, and returns its output, errors included.
func script(t *testing.T, python, dir string, args ...string) (string, error) {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), python, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+here, "PYTHONIOENCODING=utf-8")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// absolute returns a path of this folder for a script that runs elsewhere.
func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// verify loads every model of a directory and runs its golden outputs with the
// real runtime. It returns how many models there were.
func verify(t *testing.T, dir string) int {
	t.Helper()
	ms, err := models.LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range ms {
		report, err := m.VerifyGolden(t.Context(), 4, serve(t, m).Run)
		if err != nil {
			t.Error(err)
		}
		if report.Cases == 0 {
			t.Errorf("%s has no golden outputs", m.Name())
		}
		t.Logf("%s: %d parameters, %d golden outputs", m.Name(), m.Parameters(), report.Equal)
	}
	return len(ms)
}

// serve runs a model until the test ends.
func serve(t *testing.T, m *models.Model) *runner.Runner {
	t.Helper()
	r, err := runner.New(m.Program(), 4, cellrt.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return r
}
