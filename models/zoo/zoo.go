package zoo

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cellmq/cellmq/models"
)

//go:embed g2p-en kjv-lm langid listops
var files embed.FS

// Names returns the names of the embedded models, sorted. The slice is the
// caller's.
func Names() []string { return []string{"g2p-en", "kjv-lm", "langid", "listops"} }

// FS returns the directory of an embedded model. It fails when there is none
// of that name.
func FS(name string) (fs.FS, error) {
	if !slices.Contains(Names(), name) {
		return nil, fmt.Errorf("no embedded model %.64q", name)
	}
	sub, err := fs.Sub(files, name)
	if err != nil {
		return nil, fmt.Errorf("open embedded model %s: %w", name, err)
	}
	return sub, nil
}

// Load loads an embedded model. It fails when there is none of that name.
func Load(name string) (*models.Model, error) {
	sub, err := FS(name)
	if err != nil {
		return nil, err
	}
	return models.Load(sub, name)
}
