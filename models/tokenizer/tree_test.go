package tokenizer_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/models/tokenizer"
)

func newTree(tb testing.TB) tokenizer.Tokenizer {
	tb.Helper()
	t, err := tokenizer.New(tokenizer.Config{Type: tokenizer.Tree}, []byte(`["a","b","[é"]`), 3)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func TestTreeEncodes(t *testing.T) {
	t.Parallel()
	tree := newTree(t)
	const deep = 100_000
	tests := []struct {
		name, text string
		want       []int32
	}{
		{"nothing", "", nil},
		{"blank", " \n\t\u2003", nil},
		{"leaf", " b\n", []int32{1}},
		{"two leaves", "( a b )", []int32{0, 1, -1}},
		{"without space", "((a b)(b [é))", []int32{0, 1, -1, 1, 2, -1, -1}},
		{"left", "( ( a b ) [é )", []int32{0, 1, -1, 2, -1}},
		{"right", "(\u2003a(b [é))", []int32{0, 1, 2, -1, -1}},
		{"deep to the left", strings.Repeat("(", deep) + "a" + strings.Repeat(" b)", deep), leftDeep(deep)},
		{"deep to the right", strings.Repeat("(a ", deep) + "a" + strings.Repeat(")", deep), rightDeep(deep)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := tree.Encode(tt.text)
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("%v, want %d ids; first %v", err, len(tt.want), got[:min(len(got), 8)])
			}
			if n := tree.Len(tt.text); n != len(tt.want) {
				t.Errorf("%d nodes, want %d", n, len(tt.want))
			}
		})
	}
}

func leftDeep(n int) []int32 {
	ids := []int32{0}
	for range n {
		ids = append(ids, 1, tokenizer.InnerNode)
	}
	return ids
}

func rightDeep(n int) []int32 {
	ids := make([]int32, 2*n+1)
	for i := n + 1; i < len(ids); i++ {
		ids[i] = tokenizer.InnerNode
	}
	return ids
}

func TestTreeRefuses(t *testing.T) {
	t.Parallel()
	tree := newTree(t)
	tests := []struct {
		name, text string
		position   int
		piece      string
		message    string
	}{
		{"open", "( a ( b", 4, "(", "is not closed"},
		{"open at once", " (", 1, "(", "is not closed"},
		{"only closed", ")", 0, ")", "closes nothing"},
		{"closed twice", "( a b ) )", 8, ")", "closes nothing"},
		{"empty node", "( )", 2, ")", "closes a node that has 0 of 2 children"},
		{"one child", "( a ( b ) )", 8, ")", "closes a node that has 1 of 2 children"},
		{"third leaf", "( [é [é a )", 8, "a", "is a third child, a node has 2"},
		{"third node", "(a b(a b))", 4, "(", "is a third child, a node has 2"},
		{"second leaf", "a b", 2, "b", "comes after the end of the tree"},
		{"second tree", "(a b) (a b)", 6, "(", "comes after the end of the tree"},
		{"unknown leaf", "( a é )", 4, "é", "is not in the vocabulary"},
		{"joined leaves", "( ab )", 2, "ab", "is not in the vocabulary"},
		{"leaf with a bracket", "(\u2003a(b[é))", 4, "b[é", "is not in the vocabulary"},
		{"long leaf", "( a " + strings.Repeat("z", 99) + " )", 4, strings.Repeat("z", 32), "is not in the vocabulary"},
		{"invalid UTF-8", "( a \xff )", 4, "\xff", "is not valid UTF-8"},
		{"deep and open", strings.Repeat("(", 1<<20), 1<<20 - 1, "(", "is not closed"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got, err := tree.Encode(tt.text)
			e, ok := errors.AsType[*tokenizer.EncodeError](err)
			if !ok {
				t.Fatalf("got %v, %v, want an EncodeError", got, err)
			}
			if e.Position != tt.position || e.Piece != tt.piece || e.Message != tt.message {
				t.Errorf("got %+v, want %q at %d %s", *e, tt.piece, tt.position, tt.message)
			}
		})
	}
}

func TestTreeVocabulary(t *testing.T) {
	t.Parallel()
	for _, vocabulary := range []string{`["a","( "]`, `["a","("]`, `["a",")"]`, `["a","b c"]`, `["a","b("]`, `["a"," b"]`, `["a"," "]`, `["a"]`} {
		if _, err := tokenizer.New(tokenizer.Config{Type: tokenizer.Tree}, []byte(vocabulary), 2); err == nil {
			t.Errorf("accepted %s", vocabulary)
		}
	}
}

// write writes a tree in postorder as an s-expression.
func write(tree tokenizer.Tokenizer, ids []int32) string {
	var stack []string
	for _, id := range ids {
		if id != tokenizer.InnerNode {
			stack = append(stack, string(tree.AppendToken(nil, id)))
			continue
		}
		n := len(stack)
		stack[n-2] = "( " + stack[n-2] + " " + stack[n-1] + " )"
		stack = stack[:n-1]
	}
	return strings.Join(stack, " ")
}

// FuzzTree checks that what is accepted is one tree, and that writing it down
// and reading it again gives the same tree.
func FuzzTree(f *testing.F) {
	for _, text := range []string{"", "a", "( a b )", "((a b)(b [é))", "( a ( b", ")", "a b", "( a b b )", "(\u2003a\nb)", "( a \xff )", "((((a b)a)b)a)"} {
		f.Add(text)
	}
	tree := newTree(f)
	f.Fuzz(func(t *testing.T, text string) {
		var ids []int32
		var err error
		bounded(t, len(text), func() { ids, err = tree.Encode(text) })
		if err != nil {
			e, ok := errors.AsType[*tokenizer.EncodeError](err)
			if !ok || e.Position < 0 || e.Position >= len(text) || e.Message == "" {
				t.Fatalf("error %v", err)
			}
			return
		}
		if n := tree.Len(text); n != len(ids) {
			t.Fatalf("%d nodes, %d ids", n, len(ids))
		}
		depth := 0
		for _, id := range ids {
			depth++
			if id == tokenizer.InnerNode {
				depth -= 2
			}
			if depth < 1 || id < tokenizer.InnerNode || id > 2 {
				t.Fatalf("ids %v are no tree", ids)
			}
		}
		if len(ids) > 0 && depth != 1 {
			t.Fatalf("ids %v are %d trees", ids, depth)
		}
		again, err := tree.Encode(write(tree, ids))
		if err != nil || !slices.Equal(again, ids) {
			t.Fatalf("%v again is %v, %v", ids, again, err)
		}
	})
}
