//go:build !unix

package models

import "github.com/cellmq/cellmq/internal/modeldir"

// mapFile maps nothing: the file is read.
func mapFile(*modeldir.Dir, string) []byte { return nil }

func unmap([]byte) error { return nil }
