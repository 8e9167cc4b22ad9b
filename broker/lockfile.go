package broker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// lockName is the file in a data directory that its server holds locked.
const lockName = "cellmq.lock"

// errLocked: another process, or another server of this one, holds the lock.
var errLocked = errors.New("locked")

// lockDir makes a data directory the caller's own until the returned file is
// closed. The file stays: removing it would let a third server lock a file
// that nobody sees any more.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	if err := lockFile(f); err != nil {
		_ = f.Close() // it was not written
		if errors.Is(err, errLocked) {
			return nil, fmt.Errorf("data directory %s is in use by another server", dir)
		}
		return nil, fmt.Errorf("lock data directory %s: %w", dir, err)
	}
	return f, nil
}
