package manual

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// The annotations of a command that hold its notes.
const (
	environmentNote = "environment"
	exitNote        = "exit codes"
)

// Notes are the sections of a command's help that come after its flags: lines
// without indentation. Empty ones are those of the command above.
type Notes struct {
	Environment string // variables that count, each with what it means
	Exit        string // exit codes, each with what it means
}

// Note gives a command notes, which those below it take over.
func Note(cmd *cobra.Command, n Notes) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	for name, text := range map[string]string{environmentNote: n.Environment, exitNote: n.Exit} {
		if text != "" {
			cmd.Annotations[name] = text
		}
	}
}

// Attach makes the commands of a tree show their notes behind the help that they
// print. It is called once, with the root.
func Attach(root *cobra.Command) {
	usual := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		usual(cmd, args)
		_, _ = io.WriteString(cmd.OutOrStdout(), sections(cmd)) // as the help before it
	})
}

// sections is the text of a command's notes.
func sections(cmd *cobra.Command) string {
	var b strings.Builder
	for _, s := range []struct{ title, text string }{
		{"Environment", note(cmd, environmentNote)}, {"Exit codes", note(cmd, exitNote)},
	} {
		if s.text == "" {
			continue
		}
		fmt.Fprintf(&b, "\n%s:\n", s.title)
		for line := range strings.Lines(s.text) {
			b.WriteString("  " + strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	return b.String()
}

// note is a command's own note, else the nearest one above it.
func note(cmd *cobra.Command, name string) string {
	for ; cmd != nil; cmd = cmd.Parent() {
		if text, ok := cmd.Annotations[name]; ok {
			return text
		}
	}
	return ""
}

// Page returns the reference page of a tree: after the preface the help of each
// command that is not hidden, as the terminal shows it.
func Page(root *cobra.Command, preface string) ([]byte, error) {
	var page bytes.Buffer
	page.WriteString(preface)
	page.WriteString("\n| command | |\n|---|---|\n")
	root.InitDefaultHelpCmd()
	commands := tree(root)
	for _, cmd := range commands {
		path := cmd.CommandPath()
		fmt.Fprintf(&page, "| [`%s`](#%s) | %s |\n", path, strings.ReplaceAll(path, " ", "-"), cmd.Short)
	}
	for _, cmd := range commands {
		var help bytes.Buffer
		out := cmd.OutOrStdout()
		cmd.InitDefaultHelpFlag() // which it gets when it runs
		cmd.SetOut(&help)
		err := cmd.Help()
		cmd.SetOut(out)
		if err != nil {
			return nil, fmt.Errorf("help of %s: %w", cmd.CommandPath(), err)
		}
		fmt.Fprintf(&page, "\n## %s\n\n```text\n", cmd.CommandPath())
		for line := range strings.Lines(help.String()) {
			page.WriteString(strings.TrimRight(line, " \n") + "\n")
		}
		page.WriteString("```\n")
	}
	return page.Bytes(), nil
}

// tree returns a command and those below it in the order in which help lists them,
// but for hidden ones and the one that prints help.
func tree(cmd *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{cmd}
	for _, below := range cmd.Commands() {
		if !below.Hidden && below.Name() != "help" {
			all = append(all, tree(below)...)
		}
	}
	return all
}
