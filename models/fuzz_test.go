package models_test

import (
	"maps"
	"runtime"
	"testing"
	"testing/fstest"

	"github.com/cellmq/cellmq/models"
)

// loadFactor is how many bytes loading may allocate for each byte of a model's
// files: weights are read, decoded and laid out anew, and a token of the
// vocabulary is in a list and in maps.
const loadFactor = 32

// FuzzModelFiles loads small models of every family whose configuration,
// vocabulary and golden outputs are data: what they claim costs no more memory
// than a multiple of what they are.
func FuzzModelFiles(f *testing.F) {
	dirs := map[string]fstest.MapFS{}
	names := familyFixtures()
	for i, name := range names {
		dirs[name] = directory(f, name)
		config := dirs[name]["config.json"].Data
		f.Add(uint8(i), config, []byte(`["<pad>","a"]`), []byte(`{"input":"21","tokens":[]}`))
		f.Add(uint8(i), []byte(`{"model_type":"rnn_lm","hidden_size":1000000000,"num_layers":64,"vocab_size":1048576}`), []byte("["), []byte("{"))
	}
	f.Fuzz(func(t *testing.T, family uint8, config, vocabulary, golden []byte) {
		dir := maps.Clone(dirs[names[int(family)%len(names)]])
		dir["config.json"] = &fstest.MapFile{Data: config}
		dir["v.json"] = &fstest.MapFile{Data: vocabulary}
		dir["golden.jsonl"] = &fstest.MapFile{Data: golden}
		size := 0
		for _, file := range dir {
			size += len(file.Data)
		}
		for try := 0; ; try++ { // others may allocate meanwhile: the least of some runs counts
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			m, err := models.Load(dir, "m")
			runtime.ReadMemStats(&after)
			if err != nil {
				checkBrief(t, err)
			} else if m.Name() != "m" {
				t.Fatalf("model %q", m.Name())
			}
			grown := after.TotalAlloc - before.TotalAlloc
			if grown <= uint64(loadFactor*size+1<<20) {
				return
			}
			if try == 5 {
				t.Fatalf("%d bytes allocated for %d: %v", grown, size, err)
			}
		}
	})
}
