//go:build !unix

package models

// mapFile maps nothing: the file is read.
func mapFile(string) []byte { return nil }

func unmap([]byte) error { return nil }
