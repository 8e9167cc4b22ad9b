package repotest_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestNoSleepOutsideBubbles(t *testing.T) {
	t.Parallel()
	for _, name := range matching(t, "*_test.go") {
		for _, line := range sleeps(t, name, read(t, name)) {
			t.Errorf("%s:%d: time.Sleep in a file that does not use testing/synctest", name, line)
		}
	}
}

func TestSleepsAreFound(t *testing.T) {
	t.Parallel()
	const body = "func f() { time.Sleep(1); x.Sleep(1) }\n"
	for _, test := range []struct {
		name, source string
		want         int
	}{
		{"plain", "package p\nimport \"time\"\n" + body, 1},
		{"renamed", "package p\nimport clock \"time\"\nfunc f() { clock.Sleep(1) }\n", 1},
		{"bubble", "package p\nimport (\"testing/synctest\"; \"time\")\n" + body, 0},
		{"no time", "package p\nfunc f() { x.Sleep(1) }\n", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if got := sleeps(t, "p.go", []byte(test.source)); len(got) != test.want {
				t.Errorf("%d sleeps, want %d", len(got), test.want)
			}
		})
	}
}

// sleeps returns the lines that call time.Sleep, or none when the file imports
// testing/synctest.
func sleeps(t *testing.T, name string, source []byte) []int {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, source, 0)
	if err != nil {
		t.Fatal(err)
	}
	timeName := ""
	for _, spec := range file.Imports {
		switch imported, _ := strconv.Unquote(spec.Path.Value); imported {
		case "testing/synctest":
			return nil
		case "time":
			timeName = "time"
			if spec.Name != nil {
				timeName = spec.Name.Name
			}
		}
	}
	var lines []int
	ast.Inspect(file, func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok || selector.Sel.Name != "Sleep" {
			return true
		}
		if x, ok := selector.X.(*ast.Ident); ok && timeName != "" && x.Name == timeName {
			lines = append(lines, set.Position(n.Pos()).Line)
		}
		return true
	})
	return lines
}

// TestPackageComments wants a doc.go with a package comment in every package,
// and only there. A package main has its comment where its main function is.
func TestPackageComments(t *testing.T) {
	t.Parallel()
	comments := map[string][]string{} // directory -> files with a package comment
	names := map[string]string{}
	for _, name := range matching(t, "*.go") {
		if strings.HasSuffix(name, "_test.go") || strings.Contains("/"+name, "/testdata/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, read(t, name), parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Error(err)
			continue
		}
		dir := path.Dir(name)
		names[dir] = file.Name.Name
		if file.Doc != nil && strings.TrimSpace(file.Doc.Text()) != "" {
			comments[dir] = append(comments[dir], path.Base(name))
		}
	}
	for dir, packageName := range names {
		switch with := comments[dir]; {
		case len(with) == 0:
			t.Errorf("%s: package %s has no package comment", dir, packageName)
		case len(with) > 1:
			t.Errorf("%s: package %s has package comments in %s", dir, packageName, strings.Join(with, " and "))
		case packageName != "main" && with[0] != "doc.go":
			t.Errorf("%s: the comment of package %s is in %s, not in doc.go", dir, packageName, with[0])
		}
	}
}

// TestSpeaksOfItself refuses traces of the machine that a file was written on
// and notes to oneself. The patterns are written so that they do not match
// themselves.
func TestSpeaksOfItself(t *testing.T) {
	t.Parallel()
	forbidden := regexp.MustCompile(`(?m:^|[^a-zA-Z0-9.])/wor[k]/|\.\./share[d]\b|\.librar[y]/|/tm[p]/spec|proxy\.golan[g]|` +
		`(?i:\bthis sessio[n]\b|\bsubagen[t])`)
	unfinished := regexp.MustCompile(`\b(TOD[O]|FIXM[E]|XX[X])\b`)
	for _, name := range files(t) {
		content := read(t, name)
		if !isText(content) || name == "go.sum" {
			continue
		}
		report(t, name, content, forbidden)
		if path.Ext(name) == ".go" {
			report(t, name, content, unfinished)
		}
	}
}

func report(t *testing.T, name string, content []byte, pattern *regexp.Regexp) {
	t.Helper()
	for _, at := range pattern.FindAllIndex(content, 5) {
		line := 1 + bytes.Count(content[:at[0]], []byte{'\n'})
		t.Errorf("%s:%d: %q does not belong in the repository", name, line, content[at[0]:at[1]])
	}
}
