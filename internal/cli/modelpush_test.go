package cli_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// TestModelFilesAreOneRule gives every command that reads a model's directory the
// same that a stranger may have put there, and wants the same of all.
func TestModelFilesAreOneRule(t *testing.T) {
	t.Parallel()
	s := newShelf(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name  string
		spoil func(dir string) error
		want  string
	}{
		{"link to a secret", func(dir string) error { return os.Symlink(secret, filepath.Join(dir, "card.md")) }, "card.md: symbolic link: "},
		{"link upwards", func(dir string) error { return os.Symlink("../../../secret", filepath.Join(dir, "notes")) }, "notes: symbolic link: "},
		{"link to a device", func(dir string) error { return os.Symlink("/dev/zero", filepath.Join(dir, "zeros")) }, "zeros: symbolic link: "},
		{"named pipe", func(dir string) error { return unix.Mkfifo(filepath.Join(dir, "pipe"), 0o600) }, "pipe: a named pipe, a regular file wanted"},
		{"backslash", func(dir string) error { return os.WriteFile(filepath.Join(dir, `a\b`), nil, 0o600) }, "a name of at most 255 bytes of printable text"},
		{"weight that is no number", func(dir string) error {
			path := filepath.Join(dir, "model.safetensors")
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			copy(b[len(b)-2:], "\xc0\x7f") // NaN in every type that weights are stored in
			return os.WriteFile(path, b, 0o600)
		}, "is not finite"},
		{"65 files", func(dir string) error {
			for i := range 65 {
				if err := os.WriteFile(filepath.Join(dir, "x"+strconv.Itoa(i)), nil, 0o600); err != nil {
					return err
				}
			}
			return nil
		}, "more than 64 files"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := fixture(t, "tree-h29", "trees")
			if err := tt.spoil(dir); err != nil {
				t.Fatal(err)
			}
			s.run(t, "push", dir).want(t, 1, "", tt.want)
			run(t, "", "model", "verify", dir).want(t, 1, "", tt.want)
			run(t, "", "model", "golden", dir, "--input", "t3").want(t, 1, "", tt.want)
		})
	}
}
