//go:build !unix

package top

import "os"

// listen passes nothing where there are no such signals: the size is looked up with
// each drawing anyway.
func listen(chan<- os.Signal) {}

func (l *loop) signal(os.Signal) error { return nil }

// stopSelf does nothing where a process cannot stop itself.
func stopSelf(<-chan os.Signal) {}
