package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	folder := flag.String("o", ".", "folder of the kernel package")
	flag.Parse()
	for _, u := range units() {
		for name, text := range u.files() {
			if err := os.WriteFile(filepath.Join(*folder, name), text, 0o644); err != nil { //nolint:gosec // source files are for everyone to read
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
	}
}

// units returns everything there is to generate.
func units() []*unit {
	return []*unit{
		elementwise(),
		peakUnit(),
		int8Unit("int8_avx2", avx2(), false),
		int8Unit("int8_avx512", avx512(), false),
		int8Unit("int8_vnni", avx512(), true),
		productUnit("product_f32_avx2", avx2(), formatF32(), 6, 4),
		productUnit("product_f32_avx512", avx512(), formatF32(), 14, 7),
		productUnit("product_bf16_avx2", avx2(), formatBF16(), 6, 4),
		productUnit("product_bf16_avx512", avx512(), formatBF16(), 6, 7),
		neonPeak(),
		neonElementwise(),
		neonProduct("product_f32_neon", formatF32()),
		neonProduct("product_bf16_neon", formatBF16()),
		neonInt8(),
	}
}
