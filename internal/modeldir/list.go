package modeldir

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode"
)

// The bounds of a model's files.
const (
	MaxFiles     = 64
	MaxNameBytes = 255
	MaxFileBytes = 4 << 30
	MaxBytes     = 5 << 30 // of all files together
)

// Error says which file of a directory is outside the rule.
type Error struct {
	// File is the file's name, which may be anything that a file system takes.
	File string
	// Err is what is wrong, with the bound.
	Err error
}

// Error names the file, quoted and shortened, and what is wrong.
func (e *Error) Error() string { return fmt.Sprintf("%.64q: %v", e.File, e.Err) }

// Unwrap returns what is wrong.
func (e *Error) Unwrap() error { return e.Err }

// ErrName is what is wrong with a name that is no [ValidName].
var ErrName = fmt.Errorf("a name of at most %d bytes of printable text without / and \\ wanted", MaxNameBytes)

// ValidName says whether a name can be that of a model's file, here and on every
// other system.
func ValidName(name string) bool {
	outside := func(r rune) bool { return r == '/' || r == '\\' || !unicode.IsPrint(r) }
	return name != "" && len(name) <= MaxNameBytes && fs.ValidPath(name) && !Hidden(name) && !strings.ContainsFunc(name, outside)
}

// Hidden says whether a name is none of a model's.
func Hidden(name string) bool { return strings.HasPrefix(name, ".") }

// File is a file of a model.
type File struct {
	Name string
	// Size in bytes, when it was listed.
	Size int64
}

// List returns the files of the model whose directory is the root of fsys, in the
// order of their names. What is outside the rule is an [*Error]. An fsys that is
// no [Dir] decides itself where its links lead.
func List(fsys fs.FS) ([]File, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, fmt.Errorf("read directory: %w", err)
	}
	var files []File
	sum := int64(0)
	for _, e := range entries {
		if Hidden(e.Name()) || e.IsDir() {
			continue
		}
		if !ValidName(e.Name()) {
			return nil, &Error{File: e.Name(), Err: ErrName}
		}
		s, err := stat(fsys, e)
		if err != nil {
			return nil, &Error{File: e.Name(), Err: err}
		}
		if s.IsDir() {
			continue
		}
		sum += max(0, s.Size())
		if err := checkFile(s, len(files), sum); err != nil {
			return nil, &Error{File: e.Name(), Err: err}
		}
		files = append(files, File{Name: e.Name(), Size: s.Size()})
	}
	return files, nil
}

// stat follows a link, and says of one that leads nowhere that it is a link.
func stat(fsys fs.FS, e fs.DirEntry) (fs.FileInfo, error) {
	s, err := fs.Stat(fsys, e.Name())
	if err != nil && e.Type()&fs.ModeSymlink != 0 {
		if said, ok := errors.AsType[*linkError](err); ok {
			return nil, said
		}
		return nil, &linkError{cause(err)}
	}
	return s, err
}

// cause is a file system's error without the name, which is said already.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// checkFile checks the file that comes after n others, with which it has sum bytes.
func checkFile(s fs.FileInfo, n int, sum int64) error {
	switch {
	case !s.Mode().IsRegular():
		return irregular(s.Mode())
	case n == MaxFiles:
		return fmt.Errorf("more than %d files, 1 to %d wanted", MaxFiles, MaxFiles)
	case s.Size() > MaxFileBytes:
		return fmt.Errorf("%d bytes, at most %d wanted", s.Size(), int64(MaxFileBytes))
	case sum > MaxBytes:
		return fmt.Errorf("more than %d bytes with the files before it, at most that wanted", int64(MaxBytes))
	}
	return nil
}

// irregular is the error for what is no regular file.
func irregular(mode fs.FileMode) error {
	what := "something else"
	switch {
	case mode&fs.ModeNamedPipe != 0:
		what = "a named pipe"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	case mode.IsDir():
		what = "a directory"
	}
	return fmt.Errorf("%s, a regular file wanted", what)
}
