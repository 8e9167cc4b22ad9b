package cpu_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
)

// BenchmarkLoad measures how long a program of 100 million weights takes to
// load on a backend that has none of them ("new") and on one that has all
// ("held": the hashing, which both do), and how long its size takes. It needs
// 1.5 GB of memory.
//
//	go test -run '^$' -bench Load -benchtime 3x ./cellrt/cpu
func BenchmarkLoad(b *testing.B) {
	program := decoder(b, "lstm", 16_200, 2048, 2048)
	for _, weights := range []cellrt.Weights{cellrt.F32, cellrt.BF16, cellrt.Int8} {
		p := program.WithWeights(weights)
		load := func(b *testing.B, backend *cpu.Backend) cellrt.Executable {
			b.Helper()
			x, err := backend.Load(p, 1)
			if err != nil {
				b.Fatal(err)
			}
			return x
		}
		b.Run(fmt.Sprintf("%v/new", weights), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				backend := cpu.New(cpu.Config{FoldBytes: -1})
				runtime.GC()
				b.StartTimer()
				load(b, backend)
			}
		})
		b.Run(fmt.Sprintf("%v/held", weights), func(b *testing.B) {
			backend := cpu.New(cpu.Config{FoldBytes: -1})
			held := load(b, backend)
			for b.Loop() {
				load(b, backend)
			}
			runtime.KeepAlive(held)
		})
		b.Run(fmt.Sprintf("%v/size", weights), func(b *testing.B) {
			backend := cpu.New(cpu.Config{})
			for b.Loop() {
				if _, _, err := backend.Size(p, 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
