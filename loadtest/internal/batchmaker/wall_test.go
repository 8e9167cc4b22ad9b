package batchmaker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cellmq/cellmq/loadtest/internal/batchmaker"
)

func TestWall(t *testing.T) {
	t.Parallel()
	o := batchmaker.WallScale(batchmaker.Quick, 1, "the command")
	o.Hidden, o.Duration = 4, 5*time.Millisecond
	o.CPU = func() time.Duration { return time.Hour } // of this process, which then used no more
	files, err := batchmaker.Wall(t.Context(), o, quiet)
	if err != nil {
		t.Fatal(err)
	}
	page := string(files["batchmaker-wallclock.md"])
	for _, want := range []string{
		"the command", "bit by bit", "| lstm | round-robin |", "| seq2seq | merged |", "| tree | merged |", "| lstm | round-robin of 24 |",
		"## One length", "of the machine meanwhile", "(batchmaker-wallclock/trees-tree.svg)",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in\n%s", want, page)
		}
	}
	if len(files) != 5 { // the page and a curve of each network but for the widths
		t.Errorf("%d files", len(files))
	}
}
