package registry_test

import (
	"path/filepath"
	"strconv"
	"testing"
)

// BenchmarkStore pushes and fetches 400 MB that are in no other version.
func BenchmarkStore(b *testing.B) {
	const size = 400e6
	s := setup(b, nil)
	var seed uint64
	b.Run("push", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			b.StopTimer()
			seed++
			files := dir(map[string][]byte{"model.safetensors": random(seed, size)})
			if seed > 1 {
				if err := s.Delete(b.Context(), "m", strconv.FormatUint(seed-1, 10)); err != nil {
					b.Fatal(err)
				}
			}
			b.StartTimer()
			s.push(b, version("m", strconv.FormatUint(seed, 10)), files)
		}
	})
	b.Run("fetch", func(b *testing.B) {
		m, err := s.Version(b.Context(), "m", strconv.FormatUint(seed, 10))
		if err != nil {
			b.Fatal(err)
		}
		parent := b.TempDir()
		b.SetBytes(size)
		n := 0
		for b.Loop() {
			n++
			if err := s.Fetch(b.Context(), m, filepath.Join(parent, strconv.Itoa(n)), nil); err != nil {
				b.Fatal(err)
			}
		}
	})
}
