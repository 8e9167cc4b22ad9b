package batching

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
)

// Host is what the figures were measured on.
type Host struct {
	// CPU is the name of the processor, or the architecture if it has none.
	CPU string `json:"cpu"`
	// Cores is how many the machine has and Procs how many Go uses.
	Cores int `json:"cores"`
	Procs int `json:"gomaxprocs"`
	// Go is the version of Go and the platform.
	Go string `json:"go"`
	// Commit is of the source, empty if unknown.
	Commit string `json:"commit"`
}

func describeHost(ctx context.Context) Host {
	return Host{
		CPU: processor(), Cores: runtime.NumCPU(), Procs: runtime.GOMAXPROCS(0),
		Go: runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH, Commit: commit(ctx),
	}
}

// processor returns the processor's name as Linux knows it.
func processor() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer func() { _ = f.Close() }() // it was only read
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// commit returns the commit that the binary was built from, as far as the
// build recorded it, or that of the working directory: go run records none.
func commit(ctx context.Context) string {
	revision, modified := "", ""
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, s := range build.Settings {
			switch s.Key {
			case "vcs.revision":
				revision = s.Value[:min(len(s.Value), 12)]
			case "vcs.modified":
				if s.Value == "true" {
					modified = "-dirty"
				}
			}
		}
	}
	if revision != "" {
		return revision + modified
	}
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}
