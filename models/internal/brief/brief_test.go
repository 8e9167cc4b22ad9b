package brief_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cellmq/cellmq/models/internal/brief"
)

func TestClip(t *testing.T) {
	t.Parallel()
	whole := strings.Repeat("x", brief.MaxBytes)
	if got := brief.Clip(whole); got != whole {
		t.Errorf("got %q", got)
	}
	if got, want := brief.Clip(whole+"yz"), whole+"… and 2 more bytes"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for i := range 4 {
		text := strings.Repeat("x", i) + strings.Repeat("\U0001f600", brief.MaxBytes)
		got := brief.Clip(text)
		kept, _, _ := strings.Cut(got, "…")
		if !utf8.ValidString(got) || len(kept) <= brief.MaxBytes-utf8.UTFMax || !strings.HasSuffix(got, fmt.Sprintf("and %d more bytes", len(text)-len(kept))) {
			t.Errorf("offset %d: got %q", i, got)
		}
	}
}

func TestError(t *testing.T) {
	t.Parallel()
	short := errors.New("short")
	if got := brief.Error(short); got != short { //nolint:errorlint // the same value
		t.Errorf("got %v", got)
	}
	if got := brief.Error(nil); got != nil {
		t.Errorf("got %v", got)
	}
	long := fmt.Errorf("%s: %w", strings.Repeat("x", 1000), short)
	if got := brief.Error(long); !errors.Is(got, short) || got.Error() != brief.Clip(long.Error()) {
		t.Errorf("got %v", got)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	var l brief.List
	l.Add(nil)
	if err := l.Err(); err != nil {
		t.Errorf("empty: %v", err)
	}
	var want []string
	for i := range brief.MaxErrors {
		l.Add(fmt.Errorf("error %d", i))
		want = append(want, fmt.Sprintf("error %d", i))
	}
	if got := l.Err().Error(); got != strings.Join(want, "\n") {
		t.Errorf("full: %s", got)
	}
	for n := 1; n <= 3; n++ {
		l.Add(errors.New("late"))
		if got := l.Err().Error(); got != strings.Join(want, "\n")+fmt.Sprintf("\nand %d more", n) {
			t.Errorf("%d more: %s", n, got)
		}
	}
}

func TestDifference(t *testing.T) {
	t.Parallel()
	same := strings.Repeat("é", 50_000)
	for name, pair := range map[string][2]string{
		"middle": {same + "got" + same, same + "want" + same},
		"first":  {"got" + same, "want" + same},
		"longer": {same + "got", same},
		"empty":  {same, ""},
		"prefix": {"got", "got" + same},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, want := brief.Difference(pair[0], pair[1])
			if got == want || len(got)+len(want) > 3*brief.MaxBytes || !utf8.ValidString(got) || !utf8.ValidString(want) {
				t.Errorf("got %q, want %q", got, want)
			}
			if strings.Contains(pair[0], "got") && !strings.Contains(got, "got") {
				t.Errorf("%q does not show the difference", got)
			}
		})
	}
	if got, want := brief.Difference("a b", "a c"); got != "a b" || want != "a c" {
		t.Errorf("short: %q, %q", got, want)
	}
}
