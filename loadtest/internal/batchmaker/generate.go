package batchmaker

// The committed report; the machine does not matter.
//go:generate go run ../../../loadtest repro batchmaker --virtual-only --scale full --seed 1 --dir ../../../docs/repro
