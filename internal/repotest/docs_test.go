package repotest_test

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"
)

// TestLinks follows every relative link of every Markdown file.
func TestLinks(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	for _, name := range matching(t, "*.md") {
		for _, m := range link.FindAllStringSubmatch(string(read(t, name)), -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			if !exists(path.Join(path.Dir(name), target)) {
				t.Errorf("%s: the link to %s leads nowhere", name, m[1])
			}
		}
	}
}

const records = "docs/adr"

// TestDecisionRecords wants the records numbered without a gap, each with the
// parts of the template, and the index listing each under its title and status.
func TestDecisionRecords(t *testing.T) {
	t.Parallel()
	index := string(read(t, records+"/README.md"))
	title := regexp.MustCompile(`(?m)^# (\d{4}): (.+)$`)
	number := 0
	for _, name := range matching(t, "[0-9][0-9][0-9][0-9]-*.md") {
		if path.Dir(name) != records {
			continue
		}
		number++
		content := string(read(t, name))
		m := title.FindStringSubmatch(content)
		if m == nil {
			t.Errorf("%s: no title of the form \"# NNNN: title\"", name)
			continue
		}
		if want := fmt.Sprintf("%04d", number); m[1] != want || !strings.HasPrefix(path.Base(name), want+"-") {
			t.Errorf("%s: numbered %s, want %s", name, m[1], want)
		}
		for _, heading := range []string{"## Context", "## Decision", "## Consequences", "## Revisions"} {
			if !strings.Contains(content, "\n"+heading+"\n") {
				t.Errorf("%s: no %q", name, heading)
			}
		}
		status := field(content, "Status")
		for _, row := range []string{"Date", "Status", "Areas"} {
			if field(content, row) == "" {
				t.Errorf("%s: the table at the top has no %s", name, row)
			}
		}
		line := fmt.Sprintf("| [%s](%s) | %s | %s |", m[1], path.Base(name), m[2], status)
		if !strings.Contains(index, line) {
			t.Errorf("%s/README.md has no line %s", records, line)
		}
	}
	if number == 0 {
		t.Errorf("no records in %s", records)
	}
}

// field returns a cell of the two-column table at the top of a record.
func field(content, row string) string {
	m := regexp.MustCompile(`(?m)^\| ` + row + ` \| (.+) \|$`).FindStringSubmatch(content)
	if m == nil {
		return ""
	}
	return m[1]
}
