package tokenizer_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/tokenizer"
)

// pieces is a tokenizer whose token i has the text pieces[i]: any bytes.
type pieces []string

func (pieces) Len(string) int                 { return 0 }
func (pieces) Encode(string) ([]int32, error) { return nil, nil }
func (pieces) Separator() string              { return "" }
func (pieces) SegmentSeparator() string       { return "" }
func (p pieces) AppendToken(dst []byte, id int32) []byte {
	return append(dst, p[id]...)
}

// split cuts a text into tokens at random, some of them empty.
func split(rng *rand.Rand, text string) pieces {
	var p pieces
	for text != "" {
		n := rng.IntN(min(len(text), 6) + 1)
		p = append(p, text[:n])
		text = text[n:]
	}
	return p
}

// ending returns where the first stop text of a text begins and ends: that
// which is complete first, the longest of several.
func ending(text string, stops []string) (start, end int, found bool) {
	for end := range len(text) + 1 {
		longest := 0
		for _, s := range stops {
			if strings.HasSuffix(text[:end], s) {
				longest = max(longest, len(s))
			}
		}
		if longest > 0 {
			return end - longest, end, true
		}
	}
	return len(text), len(text), false
}

// readable is what bytes look like as text: U+FFFD for each byte that is part
// of no character, and without an incomplete character at the end.
func readable(b string) string {
	var out strings.Builder
	for b != "" && utf8.FullRuneInString(b) {
		r, n := utf8.DecodeRuneInString(b)
		out.WriteRune(r)
		b = b[n:]
	}
	return out.String()
}

// checkOutput streams tokens through a stopper and a text and compares with the
// whole text.
func checkOutput(t *testing.T, p pieces, stops []string) {
	t.Helper()
	set, err := tokenizer.NewStops(stops)
	if err != nil {
		t.Fatal(err)
	}
	stopper, text := tokenizer.NewStopper(p, set), tokenizer.NewText(p, set)
	var tokens []int32
	var got []byte
	take := func(free []cellrt.Token) {
		delta := text.Append(nil, free...)
		if !utf8.Valid(delta) {
			t.Fatalf("delta %q is cut inside a character", delta)
		}
		got = append(got, delta...)
		tokens = append(tokens, ids(free)...)
	}
	stopped := false
	read := ""
	for i := range p {
		var free []cellrt.Token
		free, stopped = stopper.Push(cellrt.Token{ID: int32(i)})
		read += p[i]
		take(free)
		if stopped {
			break
		}
	}
	take(stopper.Rest())
	got = text.Flush(got, stopper.Cut())

	whole := strings.Join(p, "")
	start, end, found := ending(whole, stops)
	if found != stopped || found && (len(read) < end || !strings.HasPrefix(whole, read)) {
		t.Fatalf("%q %q: stopped %t after %q, want %t", p, stops, stopped, read, found)
	}
	if want := readable(whole[:start]); string(got) != want {
		t.Fatalf("%q %q: text %q, want %q", p, stops, got, want)
	}
	at := 0
	for i, piece := range p {
		output := slices.Contains(tokens, int32(i))
		if output != (!found || at < start || at+len(piece) <= start) {
			t.Fatalf("%q %q: token %d, which begins at %d, is output: %t; the stop text begins at %d", p, stops, i, at, output, start)
		}
		at += len(piece)
	}
	if !slices.IsSorted(tokens) {
		t.Fatalf("tokens %v", tokens)
	}
}

func ids(tokens []cellrt.Token) []int32 {
	var out []int32
	for _, t := range tokens {
		out = append(out, t.ID)
	}
	return out
}

func TestStops(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		p     pieces
		stops []string
	}{
		{"none", pieces{"a", "b"}, nil},
		{"in one token", pieces{"a", "xbcy", "d"}, []string{"bc"}},
		{"across tokens", pieces{"a", "xb", "c", "dz"}, []string{"bcd"}},
		{"from the beginning", pieces{"b", "c"}, []string{"bc"}},
		{"almost", pieces{"ab", "ab", "aa"}, []string{"abac"}},
		{"restarts inside itself", pieces{"aab", "aab", "aac"}, []string{"aabaac"}},
		{"complete first wins", pieces{"abcd"}, []string{"abcd", "bc"}},
		{"longest of two", pieces{"xabc"}, []string{"bc", "abc", "c"}},
		{"empty tokens", pieces{"", "a", "", "b", "", "c"}, []string{"bc"}},
		{"of several bytes a character", pieces{"\xe4", "\xb8\x96", "\xe7\x95", "\x8c!"}, []string{"界"}},
		{"after an incomplete character", pieces{"a\xe4\xb8", "X"}, []string{"X"}},
		{"after a byte of no character", pieces{"a\x96", "X"}, []string{"X"}},
		{"incomplete at the end", pieces{"a\xe4\xb8"}, nil},
		{"held at the end", pieces{"ab", "c"}, []string{"bcd"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			checkOutput(t, tt.p, tt.stops)
		})
	}
}

// TestAnySplit cuts random texts into random tokens.
func TestAnySplit(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(2, 9))
	for range 20000 {
		alphabet := []string{"ab", "abc", "aé世", "a\xff\xe4\xb8é"}[rng.IntN(4)]
		letters := func(n int) string {
			var b []byte
			for range n {
				b = append(b, alphabet[rng.IntN(len(alphabet))])
			}
			return string(b)
		}
		var stops []string
		for range rng.IntN(4) {
			if s := letters(1 + rng.IntN(5)); utf8.ValidString(s) {
				stops = append(stops, s)
			}
		}
		checkOutput(t, split(rng, letters(rng.IntN(24))), stops)
	}
}

func FuzzAnySplit(f *testing.F) {
	f.Add("abcabcd", "bcd", "", uint64(1))
	f.Add("世界é\xff", "界", "é", uint64(2))
	f.Fuzz(func(t *testing.T, text, first, second string, seed uint64) {
		var stops []string
		for _, s := range []string{first, second} {
			if s != "" && len(s) <= tokenizer.MaxStopBytes && utf8.ValidString(s) {
				stops = append(stops, s)
			}
		}
		checkOutput(t, split(rand.New(rand.NewPCG(seed, 0)), text[:min(len(text), 1<<10)]), stops)
	})
}

// TestStopsAtSeparators shows that a dropped token takes the separator before
// it along.
func TestStopsAtSeparators(t *testing.T) {
	t.Parallel()
	words := kinds(t)["words"] // 3 AA, 4 B, 5 NG
	tests := []struct {
		stop string
		want string
		ids  []int32
	}{
		{"B", "AA", []int32{3}},
		{" B", "AA", []int32{3}},
		{"A B", "A", []int32{3}},
		{"G | A", "AA B N", []int32{3, 4, 5}},
		{" | ", "AA B NG", []int32{3, 4, 5}},
	}
	for _, tt := range tests {
		t.Run(tt.stop, func(t *testing.T) {
			t.Parallel()
			set, err := tokenizer.NewStops([]string{tt.stop})
			if err != nil {
				t.Fatal(err)
			}
			stopper, text := tokenizer.NewStopper(words, set), tokenizer.NewText(words, set)
			var got []byte
			var tokens []int32
			for _, tok := range []cellrt.Token{{ID: 3}, {ID: 4}, {ID: 5}, {ID: 3, Break: true}} {
				free, stopped := stopper.Push(tok)
				got = text.Append(got, free...)
				tokens = append(tokens, ids(free)...)
				if stopped {
					break
				}
			}
			got = text.Flush(got, stopper.Cut())
			if string(got) != tt.want || !slices.Equal(tokens, tt.ids) {
				t.Errorf("got %q %v, want %q %v", got, tokens, tt.want, tt.ids)
			}
		})
	}
}

// TestTextHoldsNoMore shows that text comes as soon as it cannot be part of a
// stop text.
func TestTextHoldsNoMore(t *testing.T) {
	t.Parallel()
	set, err := tokenizer.NewStops([]string{"stop"})
	if err != nil {
		t.Fatal(err)
	}
	p := pieces{"a st", "o", "w", "\xe4\xb8", "\x96"}
	stopper, text := tokenizer.NewStopper(p, set), tokenizer.NewText(p, set)
	var deltas []string
	for i := range p {
		free, _ := stopper.Push(cellrt.Token{ID: int32(i)})
		deltas = append(deltas, string(text.Append(nil, free...)))
	}
	if want := []string{"a ", "", "stow", "", "世"}; !slices.Equal(deltas, want) {
		t.Errorf("got %q, want %q", deltas, want)
	}
}

func TestNewStopsRefuses(t *testing.T) {
	t.Parallel()
	for name, texts := range map[string][]string{
		"empty":    {"a", ""},
		"long":     {strings.Repeat("a", tokenizer.MaxStopBytes+1)},
		"no UTF-8": {"\xff"},
		"many":     slices.Repeat([]string{"a"}, tokenizer.MaxStops+1),
	} {
		if _, err := tokenizer.NewStops(texts); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	longest := slices.Repeat([]string{strings.Repeat("a", tokenizer.MaxStopBytes)}, tokenizer.MaxStops)
	if _, err := tokenizer.NewStops(longest); err != nil {
		t.Error(err)
	}
}

func TestStopperRefusesMore(t *testing.T) {
	t.Parallel()
	set, err := tokenizer.NewStops([]string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	s := tokenizer.NewStopper(pieces{"a"}, set)
	s.Push(cellrt.Token{})
	defer func() {
		if recover() == nil {
			t.Error("a token after the stop text was taken")
		}
	}()
	s.Push(cellrt.Token{})
}
