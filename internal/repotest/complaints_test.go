package repotest_test

import (
	"regexp"
	"strings"
	"testing"
)

// TestComplaintsHaveTests wants every test that docs/complaints.md names to
// exist, and every row to name one or say why there is none.
func TestComplaintsHaveTests(t *testing.T) {
	t.Parallel()
	const name = "docs/complaints.md"
	declared := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	for _, file := range matching(t, "*_test.go") {
		for _, m := range function.FindAllStringSubmatch(string(read(t, file)), -1) {
			declared[m[1]] = true
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)\\w+)`")
	rows, ids := 0, map[string]bool{}
	for line := range strings.Lines(string(read(t, name))) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) < 2 || strings.HasPrefix(cells[0], "---") || strings.TrimSpace(cells[len(cells)-1]) == "tests" {
			continue
		}
		rows++
		id := strings.TrimSpace(cells[0])
		if ids[id] {
			t.Errorf("%s: two rows for %s", name, id)
		}
		ids[id] = true
		tests := named.FindAllStringSubmatch(cells[len(cells)-1], -1)
		if len(tests) == 0 && !strings.HasPrefix(strings.TrimSpace(cells[len(cells)-1]), "none: ") {
			t.Errorf("%s: %s has no test", name, id)
		}
		for _, m := range tests {
			if !declared[m[1]] {
				t.Errorf("%s: %s names %s, which there is not", name, id, m[1])
			}
		}
	}
	if rows < 100 {
		t.Errorf("%s: %d rows", name, rows)
	}
}
