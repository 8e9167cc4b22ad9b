package cli_test

import (
	"strings"
	"testing"
	"time"
)

// TestCompletionScripts wants a script for each shell that asks the program.
func TestCompletionScripts(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		run(t, "", "completion", shell).want(t, 0, "__complete", "")
	}
	run(t, "", "completion", "csh").want(t, 2, "", "csh")
}

// TestCompletionWithoutServer wants what needs none.
func TestCompletionWithoutServer(t *testing.T) {
	t.Setenv("CELLMQ_NATS_URL", "nats://127.0.0.1:1")
	for _, tc := range []struct {
		line string
		want string
	}{
		{"request ", "g2p-en kjv-lm langid listops"},
		{"request g2p-en --priority ", "high std low"},
		{"demo --model ", "g2p-en kjv-lm langid listops"},
		{"worker --log-level ", "debug info warn error"},
		{"model verify ./my-lm --weights ", "f32 bf16 int8"},
		{"model deploy ", ""},
		{"completion ", "bash zsh fish powershell"},
	} {
		if got := completions(t, tc.line); got != tc.want {
			t.Errorf("%q is completed to %q, want %q", tc.line, got, tc.want)
		}
	}
}

// TestCompletionOfFiles wants names of files where an argument or a flag is one, and
// nowhere else.
func TestCompletionOfFiles(t *testing.T) {
	t.Setenv("CELLMQ_NATS_URL", "nats://127.0.0.1:1")
	const everything, nothing, directories = "0", "4", "16" // as cobra counts
	for _, tc := range []struct{ line, want string }{
		{"model golden ./my-lm --inputs ", everything},
		{"model verify ", directories},
		{"model push ", directories},
		{"model golden ", directories},
		{"model pull my-lm@2 ", directories},
		{"worker --model-dir ", directories},
		{"worker --data-dir ", directories},
		{"request g2p-en --model-dir ", directories},
		{"dlq replay 7 --model-dir ", directories},
		{"worker ", nothing},
		{"worker --slots ", nothing},
		{"worker --host ", nothing},
		{"request g2p-en ", nothing},
		{"request g2p-en --beam ", nothing},
		{"request g2p-en --stop ", nothing},
		{"demo ", nothing},
		{"cancel ", nothing},
		{"cancel --client ", nothing},
		{"dlq ", nothing},
		{"dlq show ", nothing},
		{"dlq replay ", nothing},
		{"dlq list --from ", nothing},
		{"health ", nothing},
		{"top --interval ", nothing},
		{"version ", nothing},
		{"model ", nothing},
		{"model pull ", nothing},
		{"model pull my-lm@2 dir ", nothing},
		{"model verify dir ", nothing},
		{"model verify dir --name ", nothing},
		{"model deploy --canary ", nothing},
		{"model undeploy my-lm --reason ", nothing},
	} {
		r := run(t, "", append([]string{"__complete"}, strings.Split(tc.line, " ")...)...)
		lines := strings.Split(strings.TrimSpace(r.out), "\n")
		if got := strings.TrimPrefix(lines[len(lines)-1], ":"); r.code != 0 || got != tc.want {
			t.Errorf("%q: exit code %d, directive %s, want %s", tc.line, r.code, got, tc.want)
		}
	}
}

// completions returns what the words of a line are completed to, without
// descriptions; the last word is what stands behind the last space.
func completions(t *testing.T, line string) string {
	t.Helper()
	r := run(t, "", append([]string{"__completeNoDesc"}, strings.Split(line, " ")...)...)
	if r.code != 0 {
		t.Fatalf("%q: exit code %d, %s", line, r.code, r.err)
	}
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	return strings.Join(lines[:len(lines)-1], " ") // the last line is the directive
}

// completed wants a line completed by what the server has. A server that does not
// answer within the time of a completion is asked again.
func completed(t *testing.T, line, want string) {
	t.Helper()
	got := ""
	for limit := time.Now().Add(patience); time.Now().Before(limit); {
		if got = completions(t, line); got == want {
			return
		}
	}
	t.Errorf("%q is completed to %q, want %q", line, got, want)
}
