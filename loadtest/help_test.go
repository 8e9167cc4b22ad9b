package main

import (
	"bytes"
	"flag"
	"os"
	"testing"

	"github.com/cellmq/cellmq/internal/manual"
)

//go:generate go test -count=1 -run TestReferencePage -update .

// update writes docs/loadtest-cli.md.
var update = flag.Bool("update", false, "write the reference page")

const preface = `# Commands of the load test

What ` + "`go run ./loadtest COMMAND --help`" + ` prints, of every command. [loadtest.md](loadtest.md) says how to use them. This page
is made by ` + "`go generate ./loadtest`" + `.
`

func TestEveryCommandHelps(t *testing.T) {
	t.Parallel()
	for _, fault := range manual.Faults(newRoot(), "go run ./loadtest") {
		t.Error(fault)
	}
}

func TestReferencePage(t *testing.T) {
	t.Parallel()
	const file = "../docs/loadtest-cli.md"
	page, err := manual.Page(newRoot(), preface)
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
		t.Errorf("%s is not what the commands say: run go generate ./loadtest", file)
	}
}
