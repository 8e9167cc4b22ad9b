//go:build (!amd64 && !arm64) || purego

package kernel

// native returns the tables in assembly, of which this build has none.
func native() []*Table { return nil }
