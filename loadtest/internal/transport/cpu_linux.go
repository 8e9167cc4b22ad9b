package transport

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of processor time in /proc.
const tick = 10 * time.Millisecond

// cpuTime is the processor time that a process has used.
func cpuTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	// The name may contain anything; user and system time are the 12th and 13th
	// field after it.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var sum int64
	for _, i := range []int{11, 12} {
		if i >= len(fields) {
			return 0, fmt.Errorf("processor time of process %d: %d fields", pid, len(fields))
		}
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
		}
		sum += n
	}
	return time.Duration(sum) * tick, nil
}
