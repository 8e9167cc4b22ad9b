//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package broker

import "os"

// lockFile does nothing where files cannot be locked in this way.
func lockFile(*os.File) error { return nil }
