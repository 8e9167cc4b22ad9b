package manual_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/cellmq/cellmq/internal/manual"
)

// newTree returns a program with one command, which help describes in full.
func newTree() (root, cmd *cobra.Command) {
	run := func(*cobra.Command, []string) error { return nil }
	root = &cobra.Command{Use: "tool", Short: "A tool", Long: "tool is one.", Example: "  tool run 7 --level 2 | sort", RunE: run}
	manual.Note(root, manual.Notes{Environment: "TOOL_HOME  where it lives", Exit: "0  done"})
	cmd = &cobra.Command{Use: "run N", Short: "Run", Long: "run runs.", Example: `  echo "a|b" | tool run "1 2"`, Args: cobra.ExactArgs(1), RunE: run}
	cmd.Flags().Int("level", 0, "how much (0: none)")
	root.AddCommand(cmd)
	manual.Attach(root)
	return root, cmd
}

func TestFaults(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		spoil func(root, cmd *cobra.Command)
		want  []string
	}{
		{"none", func(_, _ *cobra.Command) {}, nil},
		{"text", func(_, cmd *cobra.Command) { cmd.Long = " " }, []string{"tool run: no text"}},
		{"example", func(_, cmd *cobra.Command) { cmd.Example = "" }, []string{"tool run: no example"}},
		{"notes", func(root, _ *cobra.Command) { root.Annotations = nil }, []string{
			"tool run: no environment", "tool run: no exit codes", "tool: no environment", "tool: no exit codes",
		}},
		{"description", func(_, cmd *cobra.Command) { cmd.Flags().Bool("quiet", false, "") }, []string{"tool run: --quiet has no description"}},
		{"zero", func(_, cmd *cobra.Command) { cmd.Flags().Duration("wait", 0, "how long") }, []string{
			"tool run: --wait does not say what its default, 0, means",
		}},
		{"flag of an example", func(_, cmd *cobra.Command) { cmd.Example = "  tool run 1 --loud" }, []string{
			`tool run: example "tool run 1 --loud": unknown flag: --loud`,
		}},
		{"argument of an example", func(_, cmd *cobra.Command) { cmd.Example = "  tool run 1 2 > file" }, []string{
			`tool run: example "tool run 1 2 > file": accepts 1 arg(s), received 2`,
		}},
		{"command of an example", func(_, cmd *cobra.Command) { cmd.Example = "  tool walk" }, []string{
			`tool run: example "tool walk": unknown command "walk" for "tool"`,
		}},
		{"hidden", func(_, cmd *cobra.Command) { cmd.Hidden, cmd.Long = true, "" }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			root, cmd := newTree()
			tc.spoil(root, cmd)
			got := manual.Faults(root, "tool")
			slices.Sort(got)
			if !slices.Equal(got, tc.want) {
				t.Errorf("%q\nwant %q", got, tc.want)
			}
		})
	}
}

func TestHelpHasNotes(t *testing.T) {
	t.Parallel()
	root, cmd := newTree()
	manual.Note(cmd, manual.Notes{Exit: "0  run\n1  not run"})
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs([]string{"run", "--help"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	const want = "\nEnvironment:\n  TOOL_HOME  where it lives\n\nExit codes:\n  0  run\n  1  not run\n"
	if !strings.HasSuffix(out.String(), want) {
		t.Errorf("help is\n%s\nwant at its end\n%s", &out, want)
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	root, _ := newTree()
	page, err := manual.Page(root, "# Commands\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# Commands\n", "| [`tool run`](#tool-run) | Run |", "\n## tool run\n\n```text\nrun runs.\n", "--level int", "TOOL_HOME"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if strings.Contains(string(page), " \n") {
		t.Error("a line ends in white space")
	}
}
