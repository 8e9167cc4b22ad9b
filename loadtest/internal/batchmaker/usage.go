package batchmaker

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// tick is the unit of processor time in /proc.
const tick = 10 * time.Millisecond

// usage is processor time since some beginning: of all processors of the machine, how
// many those are, which may be more than this process may use, and of this process.
type usage struct {
	machine    time.Duration
	processors int
	own        time.Duration
	known      bool
}

// usage reads what the machine and this process have used so far.
func (o WallOptions) usage() usage {
	text, err := os.ReadFile("/proc/stat")
	if err != nil || o.CPU == nil {
		return usage{}
	}
	machine, processors, ok := readStat(string(text))
	return usage{machine: machine, processors: processors, own: o.CPU(), known: ok}
}

// share returns what part of the machine other programs used between two readings;
// negative: it is not known.
func share(before, after usage, elapsed time.Duration) float64 {
	if !before.known || !after.known || elapsed <= 0 {
		return -1
	}
	others := (after.machine - before.machine) - (after.own - before.own)
	return max(others.Seconds()/elapsed.Seconds()/float64(after.processors), 0)
}

// readStat returns the processor time in a text as Linux has it in /proc/stat: user,
// nice, system, irq, softirq and stolen, without idle and waiting for a disk; and the
// number of processors that it sums, each of which has a line of its own.
func readStat(text string) (used time.Duration, processors int, ok bool) {
	line, rest, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	for each := range strings.Lines(rest) {
		if strings.HasPrefix(each, "cpu") {
			processors++
		}
	}
	if len(fields) < 9 || fields[0] != "cpu" || processors == 0 {
		return 0, 0, false
	}
	for _, i := range []int{1, 2, 3, 6, 7, 8} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, 0, false
		}
		used += time.Duration(n) * tick
	}
	return used, processors, true
}
