package registry

import (
	"errors"
	"fmt"
)

// Errors of this package. What is returned wraps one of them with names and bounds.
var (
	// ErrNoRegistry: the server has no buckets of a registry; the first push makes
	// them.
	ErrNoRegistry = errors.New("no model registry on the server")
	// ErrNotFound: no such version or deployment.
	ErrNotFound = errors.New("not in the registry")
	// ErrMalformed: a record that cannot be read or is outside its bounds.
	ErrMalformed = errors.New("malformed record")
	// ErrConflict: somebody else wrote the record first. Nothing was written.
	ErrConflict = errors.New("record has changed")
	// ErrLost: the lock of the registry went to somebody else, or could not be
	// renewed. What was done up to then stays and can be repeated.
	ErrLost = errors.New("lock of the registry lost")

	// ErrVersionTaken: the version is there with other files. Nothing was written.
	ErrVersionTaken = errors.New("version is taken")
	// ErrIncomplete: a part of a version is missing or not whole. Pushing the
	// version again puts that right.
	ErrIncomplete = errors.New("incomplete in the registry")
	// ErrDigest: stored bytes are not those that the version names.
	ErrDigest = errors.New("digest differs")
	// ErrChanged: a file changed while it was pushed. No version was made.
	ErrChanged = errors.New("file changed during the push")
	// ErrNoRoom: the object store is full. Versions that are there stay whole.
	ErrNoRoom = errors.New("no room in the registry")
	// ErrNoReserve: the server cannot reserve what the store shall take. The store is
	// as it was.
	ErrNoReserve = errors.New("no room on the server")

	// ErrLive: a version that serves, soon may, or is loaded somewhere is not deleted.
	ErrLive = errors.New("version is in use")
	// ErrHeld: the deployment needs a version no more, and workers still have it
	// loaded, as for some time after it served. It is an [ErrLive] that passes.
	ErrHeld = fmt.Errorf("still loaded: %w", ErrLive)
	// ErrDeleting: a version is being deleted, and not deployed.
	ErrDeleting = errors.New("version is being deleted")
	// ErrPinned: the deployment is pinned and changes only when it no longer is.
	ErrPinned = errors.New("deployment is pinned")
	// ErrUnderWay: a deployment of the model has begun and not ended.
	ErrUnderWay = errors.New("a deployment is under way")
	// ErrThird: two other versions of the model are loaded somewhere.
	ErrThird = errors.New("two versions are live")
	// ErrNothing: there is nothing to begin, to promote or to go back to. The
	// deployment is as it was.
	ErrNothing = errors.New("nothing to do")
)
