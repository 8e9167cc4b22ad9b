package alternative

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of processor time in /proc, the same on every Linux that Go
// runs on.
const tick = 10 * time.Millisecond

// processorTime is the processor time that processes have used.
func processorTime(ids []int) time.Duration {
	sum := time.Duration(0)
	for _, id := range ids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", id))
		if err != nil {
			continue
		}
		// After the name, which may hold anything: the state is field 3, user and
		// system time are fields 14 and 15.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		for _, at := range []int{11, 12} {
			if len(fields) > at {
				n, _ := strconv.ParseInt(fields[at], 10, 64) // the kernel's own number
				sum += time.Duration(n) * tick
			}
		}
	}
	return sum
}

// memory is the memory that processes take, in bytes: what is each one's own, and
// once what they share, with each other or with others.
func memory(ids []int) int64 {
	own, shared := int64(0), int64(0)
	for _, id := range ids {
		f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", id))
		if err != nil {
			continue
		}
		of := int64(0)
		for lines := bufio.NewScanner(f); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			if len(fields) < 2 {
				continue
			}
			n, _ := strconv.ParseInt(fields[1], 10, 64) // the kernel's own number
			switch fields[0] {
			case "Private_Clean:", "Private_Dirty:":
				own += n << 10
			case "Shared_Clean:", "Shared_Dirty:":
				of += n << 10
			}
		}
		shared = max(shared, of)
		_ = f.Close() // it was only read
	}
	return own + shared
}
