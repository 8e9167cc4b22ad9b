//go:build !unix

package load

import "time"

// CPUTime is the processor time that this process has used: unknown here.
func CPUTime() time.Duration { return 0 }
