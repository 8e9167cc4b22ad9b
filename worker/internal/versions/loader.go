package versions

import (
	"context"
	"time"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
)

// Key names a version: a model's name and the digest of its files.
type Key struct {
	// Model is the name that requests use.
	Model string

	// Digest is the model's own, also of a model that comes from no registry. It
	// is never empty.
	Digest string
}

// Loaded is a version in memory. Nobody changes it.
type Loaded struct {
	// Model tokenizes and unfolds, and Runtime is what runs it. They are the
	// loader's: this package does not touch them.
	Model   *models.Model
	Runtime *cellrt.Model

	// Weights and State are the bytes of its weights and of its arena; Shared
	// are those of Weights that another version held when it was loaded.
	Weights, Shared, State int64

	// Golden says how it did on its golden outputs.
	Golden models.GoldenReport

	// Took is how long it took from files to checked.
	Took time.Duration
}

// Opened is a version whose files were read and found right.
type Opened interface {
	// Size returns the most that Load adds to the memory in use, in bytes: that
	// of a version that shares nothing with another.
	Size() (weights, state int64)

	// Close gives up the files. It is called once, after Load or instead of it.
	Close()
}

// Loader brings versions into memory and out of it. Of one key no two calls run
// at the same time; Open and Load run for one version at a time, Fetch for two.
type Loader interface {
	// Fetch brings the files of a version to this machine, and does nothing when
	// they are there. An error that is neither an [ErrUnknown] nor an
	// [ErrRefused] counts as passing: Fetch is called again after a pause. The
	// files have to stay until the version is loaded or not wanted any more.
	Fetch(ctx context.Context, k Key) error

	// Open reads the files.
	Open(ctx context.Context, k Key) (Opened, error)

	// Load puts the version into the runtime and compares its golden outputs,
	// which it begins with stage([Verifying]). When it fails nothing is left in
	// memory.
	Load(ctx context.Context, o Opened, stage func(State)) (*Loaded, error)

	// Unload takes a version that nobody refers to out of memory. When it fails
	// the version stays, and Unload is called again later.
	Unload(l *Loaded) error

	// Footprint returns the bytes of all these versions together, what they
	// share counted once. It is called with the set's lock held and must not
	// call the set.
	Footprint(all []*Loaded) int64
}
