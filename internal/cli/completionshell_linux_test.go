package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// typist is a shell in a terminal that has loaded the program's completion.
type typist struct {
	terminal *pseudoTerminal
	lines    int
}

// completingShell starts a shell in whose PATH the test is the program, in a directory
// with a file that nothing is to be completed to.
func completingShell(t *testing.T, load string, command ...string) *typist {
	t.Helper()
	dir := t.TempDir()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\n%s=1 exec %s \"$@\"\n", asProgram, program)
	if err := os.WriteFile(filepath.Join(dir, "cellmq"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "a-file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := newTerminal(t, 200, 50)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = work
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir, "TERM=dumb", "PS1=$ ", "CELLMQ_NATS_URL=nats://127.0.0.1:1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.program, p.program, p.program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it is at its prompt
		_ = cmd.Wait()         // killed
	})
	s := &typist{terminal: p}
	s.enters(t, load+"; ")
	return s
}

// enters ends a line so that the shell says how it understood it, and returns that.
// The mark is put together by the shell: the line as it is typed has it in two.
func (s *typist) enters(t *testing.T, line string) string {
	t.Helper()
	s.lines++
	begin, end := fmt.Sprintf("<%d:", s.lines), fmt.Sprintf(":%d>", s.lines)
	s.terminal.press(t, fmt.Sprintf("%sprintf '%%s' '<''%d:' ; printf '%%s' ':''%d>'\r", line, s.lines, s.lines))
	return s.between(t, begin, end)
}

// completes types a line, presses Tab, and returns the words that the shell made of it.
func (s *typist) completes(t *testing.T, line string) string {
	t.Helper()
	s.lines++
	begin, end := fmt.Sprintf("<%d:", s.lines), fmt.Sprintf(":%d>", s.lines)
	s.terminal.press(t, line+"\t")
	// Ctrl-A and Ctrl-E go to the line's ends once the shell is through with the Tab.
	s.terminal.press(t, fmt.Sprintf("\x01printf ' %%s' '<''%d:' \x05 ':''%d>'\r", s.lines, s.lines))
	return strings.Join(strings.Fields(s.between(t, begin, end)), " ")
}

// between waits for what the shell prints between two marks.
func (s *typist) between(t *testing.T, begin, end string) string {
	t.Helper()
	timeout := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		all := s.terminal.all()
		if _, rest, ok := strings.Cut(all, begin); ok {
			if text, _, ok := strings.Cut(rest, end); ok {
				return text
			}
		}
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("the shell printed no %s ... %s: %q", begin, end, all)
		}
	}
}

// TestCompletionInShells presses Tab in the shells that this machine has.
func TestCompletionInShells(t *testing.T) {
	t.Parallel()
	const bashCompletion = "/usr/share/bash-completion/bash_completion"
	source := "source <(cellmq completion bash)"
	for _, shell := range []struct {
		name, load string
		command    []string
	}{
		{"bash", source, []string{"bash", "--norc", "--noprofile", "-i"}},
		{"bash with bash-completion", "source " + bashCompletion + "; " + source, []string{"bash", "--norc", "--noprofile", "-i"}},
		{"zsh", "autoload -U compinit; compinit -u -D; source <(cellmq completion zsh)", []string{"zsh", "-f", "-i"}},
		{"fish", "cellmq completion fish | source", []string{"fish", "--no-config", "-i"}},
	} {
		if _, err := exec.LookPath(shell.command[0]); err != nil {
			t.Logf("no %s here", shell.name)
			continue
		}
		if _, err := os.Stat(bashCompletion); err != nil && strings.Contains(shell.load, bashCompletion) {
			t.Logf("no package bash-completion here")
			continue
		}
		t.Run(shell.name, func(t *testing.T) {
			t.Parallel()
			s := completingShell(t, shell.load, shell.command...)
			for _, tc := range []struct{ line, want string }{
				{"cellmq req", "cellmq request"},
				{"cellmq request g", "cellmq request g2p-en"},
				{"cellmq request g2p-en --priority=h", "cellmq request g2p-en --priority=high"},
				{"cellmq worker --log-level de", "cellmq worker --log-level debug"},
				{"cellmq request --nats-url nats://127.0.0.1:1 li", "cellmq request --nats-url nats://127.0.0.1:1 listops"},
				{"cellmq dlq show a-", "cellmq dlq show a-"},
			} {
				if got := s.completes(t, tc.line); got != tc.want {
					t.Errorf("%q<Tab> is %q, want %q", tc.line, got, tc.want)
				}
			}
		})
	}
}
