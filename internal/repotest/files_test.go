package repotest_test

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// root is the repository, seen from this package's directory.
const root = "../.."

// files returns the paths of the repository's files, relative to its root and
// with slashes: those that git tracks, or in a tree without git those that are
// there.
func files(t *testing.T) []string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "git", "ls-files", "-z")
	command.Dir = root
	if out, err := command.Output(); err == nil && len(out) > 0 {
		var present []string
		for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			if _, err := os.Lstat(filepath.Join(root, name)); err == nil {
				present = append(present, name)
			}
		}
		return present
	}
	var found []string
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found = append(found, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// matching returns the repository's files whose base name matches pattern, and
// fails when there is none: a rule that applies to nothing is a mistake.
func matching(t *testing.T, pattern string) []string {
	t.Helper()
	var found []string
	for _, name := range files(t) {
		ok, err := path.Match(pattern, path.Base(name))
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		t.Fatalf("no file matches %s", pattern)
	}
	return found
}

// read returns the content of a file of the repository.
func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// exists tells whether the repository has a file or directory of that name.
func exists(name string) bool {
	_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
	return err == nil
}

// isText tells whether content is text: it has no zero byte near its start.
func isText(content []byte) bool {
	return !bytes.Contains(content[:min(len(content), 8000)], []byte{0})
}
