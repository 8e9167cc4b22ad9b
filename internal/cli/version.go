package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/cellrt/cpu"
	"github.com/cellmq/cellmq/internal/manual"
)

// version of the software, SemVer.
const version = "0.1.0"

func newVersion(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, and the instruction tiers of this machine",
		Long: `version prints the version of cellmq, the commit that it was built from as far as it
is known, Go's version, and the instruction tiers that this machine can compute
with, the fastest last. CELLMQ_ISA chooses another than that for a worker.`,
		Example: `  cellmq version`,
		Args:    args(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(s.out, "cellmq %s%s %s %s/%s\ninstruction tiers: %s\n",
				version, revision(), runtime.Version(), runtime.GOOS, runtime.GOARCH, strings.Join(cpu.Tiers(), " "))
			return err
		},
	}
	manual.Note(cmd, manual.Notes{Environment: noEnvironment, Exit: usualExit})
	return cmd
}

// revision is the commit that the binary was built from, as far as the build
// recorded it.
func revision() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	commit, modified := "", ""
	for _, s := range build.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value[:min(len(s.Value), 12)]
		case "vcs.modified":
			if s.Value == "true" {
				modified = ", modified"
			}
		}
	}
	if commit == "" {
		return ""
	}
	return " (" + commit + modified + ")"
}
