//go:build !linux

package transport

import (
	"errors"
	"time"
)

// cpuTime is known on Linux only.
func cpuTime(int) (time.Duration, error) {
	return 0, errors.New("the processor time of other processes can be measured on Linux only")
}
