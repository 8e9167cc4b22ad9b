package cli

import (
	"bytes"
	"flag"
	"io"
	"os"
	"testing"

	"github.com/cellmq/cellmq/internal/manual"
)

//go:generate go test -count=1 -run TestReferencePage -update .

// update writes docs/cli.md.
var update = flag.Bool("update", false, "write the reference page")

const preface = `# Commands

What ` + "`cellmq COMMAND --help`" + ` prints, of every command. [operations.md](operations.md) has the settings of a worker,
[loadtest-cli.md](loadtest-cli.md) the commands of the load test. This page is made by ` + "`go generate ./internal/cli`" + `.
`

func TestEveryCommandHelps(t *testing.T) {
	t.Parallel()
	for _, fault := range manual.Faults(newRoot(streams{out: io.Discard, err: io.Discard}), "cellmq ") {
		t.Error(fault)
	}
}

func TestReferencePage(t *testing.T) {
	t.Parallel()
	const file = "../../docs/cli.md"
	page, err := manual.Page(newRoot(streams{out: io.Discard, err: io.Discard}), preface)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(file, page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	was, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(was, page) {
		t.Errorf("%s is not what the commands say: run go generate ./internal/cli", file)
	}
}
