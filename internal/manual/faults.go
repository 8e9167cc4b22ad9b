package manual

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Faults returns what is missing in the help of a tree's commands: text, examples,
// notes, descriptions of flags, and what the zero value of a flag means, since help
// shows no such default. It parses the flags of the examples, which begin with
// program, so the tree is of no other use afterwards.
func Faults(root *cobra.Command, program string) []string {
	var faults []string
	for _, cmd := range tree(root) {
		fault := func(format string, args ...any) {
			faults = append(faults, cmd.CommandPath()+": "+fmt.Sprintf(format, args...))
		}
		for name, text := range map[string]string{
			"short text": cmd.Short, "text": cmd.Long, "example": cmd.Example,
			environmentNote: note(cmd, environmentNote), exitNote: note(cmd, exitNote),
		} {
			if strings.TrimSpace(text) == "" {
				fault("no %s", name)
			}
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			switch {
			case f.Name == "help":
			case f.Usage == "":
				fault("--%s has no description", f.Name)
			case (f.DefValue == "0" || f.DefValue == "0s") && !explainsZero(f.Usage):
				fault("--%s does not say what its default, 0, means", f.Name)
			}
		})
		for line := range strings.Lines(cmd.Example) {
			if err := try(root, program, line); err != nil {
				fault("example %q: %v", strings.TrimSpace(line), err)
			}
		}
	}
	return faults
}

// explainsZero reports whether a description says what happens without the flag.
func explainsZero(usage string) bool {
	for _, words := range []string{"default", "0:", "0 is", "0 means"} {
		if strings.Contains(usage, words) {
			return true
		}
	}
	return false
}

// try parses the command lines of a line of an example.
func try(root *cobra.Command, program, line string) error {
	start := strings.Index(line, program)
	if start < 0 {
		return nil // what goes before or after it
	}
	args := words(line[start+len(program):])
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if cmd == root && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return fmt.Errorf("no command %q", rest[0])
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if cmd.Args != nil {
		return cmd.Args(cmd, cmd.Flags().Args())
	}
	return nil
}

// words splits a command of a shell into words, up to where it ends.
func words(line string) []string {
	var all []string
	var word strings.Builder
	quote, open := rune(0), false
	for _, r := range line + " " {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			quote, open = r, true
		case strings.ContainsRune(" \n\t|&<>;)#", r):
			if open || word.Len() > 0 {
				all = append(all, word.String())
			}
			word.Reset()
			open = false
			if strings.ContainsRune("|&<>;)#", r) {
				return all
			}
		default:
			word.WriteRune(r)
		}
	}
	return all
}
