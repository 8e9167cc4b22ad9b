package alternative

import (
	"fmt"
	"os"
	"runtime"
	"strings"
)

// host names the machine: its processor as Linux knows it, or the architecture.
func host() string {
	about := map[string]string{}
	text, _ := os.ReadFile("/proc/cpuinfo") // elsewhere there is none
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && about[strings.TrimSpace(name)] == "" {
			about[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	name := runtime.GOARCH
	if about["model name"] != "" {
		name = fmt.Sprintf("%s (family %s, model %s)", about["model name"], about["cpu family"], about["model"])
	}
	return fmt.Sprintf("%s, %d processors, %s, %s/%s", name, runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// loadAverage is how many processes wanted to run, over the last one and five
// minutes; empty where that is not known.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(text))
	return strings.Join(fields[:min(2, len(fields))], " and ")
}
