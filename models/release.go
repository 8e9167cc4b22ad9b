package models

import "sync"

// held is what a model keeps in memory for loading it into a runtime.
type held struct {
	dir    *Dir // that it is loaded from; nil unless that is one
	closed sync.Once
}

// Close drops the model's tensors, for whoever has loaded it into the runtimes
// that are to run it: their memory goes, or the mapping's use ends. Everything
// else goes on: names, bounds, Unfold, Restore, tokenizers, golden inputs, the
// program's layout. To load the program afterwards, or that of the same model
// with another weight type (see [Model.WithWeights]), panics and says that it is
// closed. Close may be called again, and beside requests; it must not run beside
// a load of the program.
func (m *Model) Close() {
	m.held.closed.Do(func() {
		m.program.Close()
		if m.held.dir != nil {
			m.held.dir.drop()
		}
	})
}
