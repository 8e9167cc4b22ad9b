package compare

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
)

// Host is what the figures were measured on.
type Host struct {
	// CPU is the name of the processor, with family and model where the name
	// says little, or the architecture if it has none.
	CPU string `json:"cpu"`
	// Cores is how many the machine has.
	Cores int `json:"cores"`
	// Go is the version of Go and the platform.
	Go string `json:"go"`
	// Commit is of the source in the working directory, empty if unknown.
	Commit string `json:"commit"`
}

func describeHost(ctx context.Context) Host {
	h := Host{CPU: processor(), Cores: runtime.NumCPU(), Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH}
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*").Output()
	if err == nil {
		h.Commit = strings.TrimSpace(string(out))
	}
	return h
}

// processor returns the processor's name, family and model as Linux knows them.
func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer func() { _ = f.Close() }() // it was only read
	about := map[string]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok {
			name = strings.TrimSpace(name)
			if _, seen := about[name]; !seen {
				about[name] = strings.TrimSpace(value)
			}
		}
	}
	if about["model name"] == "" {
		return runtime.GOARCH
	}
	return about["model name"] + " (family " + about["cpu family"] + ", model " + about["model"] + ")"
}
