package tokenizer_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/tokenizer"
)

const (
	letters = `["<pad>", "<s>", "</s>", "'", "a", "b", "é"]`
	sounds  = `["<pad>", "<s>", "</s>", "AA", "B", "NG"]`
)

func setup(tb testing.TB, config, vocabulary string, size int) tokenizer.Tokenizer {
	tb.Helper()
	var c tokenizer.Config
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		tb.Fatal(err)
	}
	tok, err := tokenizer.New(c, []byte(vocabulary), size)
	if err != nil {
		tb.Fatal(err)
	}
	return tok
}

func kinds(tb testing.TB) map[string]tokenizer.Tokenizer {
	tb.Helper()
	return map[string]tokenizer.Tokenizer{
		"exact": setup(tb, `{"type":"characters","vocab":"v"}`, letters, 7),
		"lower": setup(tb, `{"type":"characters","vocab":"v","lowercase":true}`, letters, 7),
		"words": setup(tb, `{"type":"words","vocab":"v","segment_separator":" | "}`, sounds, 6),
		"ids":   setup(tb, `"ids"`, "", 23),
		"bytes": setup(tb, `"bytes"`, "", 257),
	}
}

func TestEncode(t *testing.T) {
	t.Parallel()
	tests := []struct {
		kind, text string
		want       []int32
	}{
		{"exact", "", []int32{}},
		{"exact", "ab'é", []int32{4, 5, 3, 6}},
		{"lower", "AbÉ", []int32{4, 5, 6}},
		{"words", "", []int32{}},
		{"words", "AA NG B", []int32{3, 5, 4}},
		{"ids", "", []int32{}},
		{"bytes", "", []int32{}},
		{"bytes", "a é", []int32{'a', ' ', 0xc3, 0xa9}},
		{"ids", " 0 22\n7 ", []int32{0, 22, 7}},
	}
	toks := kinds(t)
	for _, tt := range tests {
		t.Run(tt.kind+" "+tt.text, func(t *testing.T) {
			t.Parallel()
			got, err := toks[tt.kind].Encode(tt.text)
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("got %v, %v, want %v", got, err, tt.want)
			}
			if n := toks[tt.kind].Len(tt.text); n != len(tt.want) {
				t.Errorf("Len is %d, want %d", n, len(tt.want))
			}
		})
	}
}

func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		kind, text string
		position   int
		piece      string
		message    string
	}{
		{"exact", "aA", 1, "A", "is not in the vocabulary"},
		{"exact", "éa世", 2, "世", "is not in the vocabulary"},
		{"exact", "<s>", 0, "<", "is not in the vocabulary"},
		{"exact", "a\xffb", 1, "\xff", "is not valid UTF-8"},
		{"exact", "a\ufffd", 1, "\ufffd", "is not in the vocabulary"},
		{"lower", "aÉZ", 2, "Z", "is not in the vocabulary"},
		{"words", "AA aa", 1, "aa", "is not in the vocabulary"},
		{"words", "AA  B", 1, "", "is not in the vocabulary"},
		{"words", "AA \xff", 1, "\xff", "is not valid UTF-8"},
		{"words", strings.Repeat("x", 1000), 0, strings.Repeat("x", 32), "is not in the vocabulary"},
		{"bytes", "é\xffa", 1, "\xff", "is not valid UTF-8"},
		{"ids", "1 two", 1, "two", "is not a token id"},
		{"ids", "-1", 0, "-1", "is not a token id"},
		{"ids", "4294967296", 0, "4294967296", "is not a token id"},
		{"ids", "22 23", 1, "23", "is not below 23"},
		{"ids", "1 \xff", 1, "\xff", "is not valid UTF-8"},
	}
	toks := kinds(t)
	for _, tt := range tests {
		t.Run(tt.kind+" "+tt.text, func(t *testing.T) {
			t.Parallel()
			_, err := toks[tt.kind].Encode(tt.text)
			got, ok := errors.AsType[*tokenizer.EncodeError](err)
			if !ok {
				t.Fatalf("got %v, want an EncodeError", err)
			}
			if want := (tokenizer.EncodeError{Position: tt.position, Piece: tt.piece, Message: tt.message}); *got != want {
				t.Errorf("got %+v, want %+v", *got, want)
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	empty, long := "", strings.Repeat("-", 17)
	tests := []struct {
		name   string
		config tokenizer.Config
		vocab  string
		size   int
	}{
		{"no type", tokenizer.Config{}, "[]", 0},
		{"unknown type", tokenizer.Config{Type: "bpe"}, `["a"]`, 1},
		{"no vocabulary", tokenizer.Config{Type: "characters"}, "", 1},
		{"not an array", tokenizer.Config{Type: "characters"}, `{"a":1}`, 1},
		{"other size", tokenizer.Config{Type: "characters"}, `["a"]`, 2},
		{"repeated token", tokenizer.Config{Type: "words"}, `["a","a"]`, 2},
		{"empty token", tokenizer.Config{Type: "words"}, `["a",""]`, 2},
		{"fewer tokens than bytes", tokenizer.Config{Type: "bytes"}, "", 255},
		{"words without separator", tokenizer.Config{Type: "words", Separator: &empty}, `["a"]`, 1},
		{"long separator", tokenizer.Config{Type: "words", Separator: &long}, `["a"]`, 1},
		{"long segment separator", tokenizer.Config{Type: "ids", SegmentSeparator: &long}, "", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if _, err := tokenizer.New(tt.config, []byte(tt.vocab), tt.size); err == nil {
				t.Error("accepted")
			}
		})
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	token := func(ids ...int32) []cellrt.Token {
		var out []cellrt.Token
		for _, id := range ids {
			if id < 0 { // the next token starts a segment
				out = append(out, cellrt.Token{ID: -id, Break: true})
			} else {
				out = append(out, cellrt.Token{ID: id})
			}
		}
		return out
	}
	tests := []struct {
		name, kind string
		tokens     []cellrt.Token
		want       string
	}{
		{"nothing", "words", nil, ""},
		{"words", "words", token(3, 4, 5), "AA B NG"},
		{"segments", "words", token(3, 4, -5, 3, -4), "AA B | NG AA | B"},
		{"first segment empty", "words", token(-3, 4), "AA B"},
		{"unknown id", "words", token(3, 99), "AA "},
		{"characters", "exact", token(4, 6, 5), "aéb"},
		{"ids", "ids", token(22, 7, 0), "22 7 0"},
	}
	toks := kinds(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := string(tokenizer.NewText(toks[tt.kind], nil).Append(nil, tt.tokens...)); got != tt.want {
				t.Errorf("at once: got %q, want %q", got, tt.want)
			}
			text := tokenizer.NewText(toks[tt.kind], nil)
			var whole []byte
			for _, tok := range tt.tokens {
				delta := text.Append(nil, tok)
				if !utf8.Valid(delta) {
					t.Errorf("delta %q is cut inside a character", delta)
				}
				whole = append(whole, delta...)
			}
			if string(whole) != tt.want {
				t.Errorf("one by one: got %q, want %q", whole, tt.want)
			}
		})
	}
}

func TestTextAllocatesNothing(t *testing.T) {
	text := tokenizer.NewText(kinds(t)["words"], nil)
	tokens := []cellrt.Token{{ID: 3}, {ID: 4, Break: true}}
	buf := make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() { buf = text.Append(buf[:0], tokens...) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzRoundTrip(f *testing.F) {
	for _, s := range []string{"", "ab'é", "AA NG", "1 2 3", "\xff", "é\xc3", "0007", "<s>"} {
		f.Add(s)
	}
	toks := kinds(f)
	f.Fuzz(func(t *testing.T, s string) {
		for kind, tok := range toks {
			var ids []int32
			var err error
			bounded(t, len(s), func() { ids, err = tok.Encode(s) })
			if err != nil {
				if _, ok := errors.AsType[*tokenizer.EncodeError](err); !ok {
					t.Fatalf("%s: %v is no EncodeError", kind, err)
				}
				continue
			}
			if len(ids) != tok.Len(s) {
				t.Fatalf("%s: %d tokens, Len %d", kind, len(ids), tok.Len(s))
			}
			var tokens []cellrt.Token
			for _, id := range ids {
				tokens = append(tokens, cellrt.Token{ID: id})
			}
			text := string(tokenizer.NewText(tok, nil).Append(nil, tokens...))
			again, err := tok.Encode(text)
			if err != nil || !slices.Equal(again, ids) {
				t.Fatalf("%s: %q gives %v, its text %q gives %v, %v", kind, s, ids, text, again, err)
			}
		}
	})
}
