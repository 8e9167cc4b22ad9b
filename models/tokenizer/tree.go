package tokenizer

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// InnerNode stands for an inner node among the ids that a tree encodes to: it
// joins the two subtrees that end before it. A leaf is its token's id.
const InnerNode int32 = -1

// tree reads a binary tree written as an s-expression. A tree is a leaf, one
// word of the vocabulary, or "( left right )" with two trees. White space is
// needed only between two leaves.
type tree struct {
	separators
	tokens []string
	ids    map[string]int32
}

func newTree(s separators, vocabulary []byte, size int) (Tokenizer, error) {
	tokens, err := readVocabulary(vocabulary, size)
	if err != nil {
		return nil, err
	}
	t := &tree{separators: s, tokens: tokens, ids: make(map[string]int32, size)}
	for i, token := range tokens {
		if symbol, _ := cutSymbol(token); symbol != token || symbol == "(" || symbol == ")" {
			return nil, encodeError(i, token, "of the vocabulary is no leaf, it has white space or a parenthesis")
		}
		t.ids[token] = int32(i)
	}
	return t, nil
}

// Len returns the number of nodes, leaves included, that a well-formed text
// has.
func (t *tree) Len(text string) int {
	n := 0
	for {
		symbol, rest := cutSymbol(text)
		switch symbol {
		case "":
			return n
		case ")":
		default:
			n++
		}
		text = rest
	}
}

// Encode returns the tree's nodes in postorder: each leaf's id, and
// [InnerNode] after the two subtrees that it joins. Blank text has none. It
// keeps a few bytes for each open parenthesis and does not recurse.
func (t *tree) Encode(text string) ([]int32, error) {
	p := treeParser{text: text}
	rest := text
	for {
		symbol, after := cutSymbol(rest)
		if symbol == "" {
			break
		}
		at := len(text) - len(after) - len(symbol)
		var err error
		switch symbol {
		case "(":
			err = p.open(at)
		case ")":
			err = p.close(at)
		default:
			err = p.leaf(at, symbol, t.ids)
		}
		if err != nil {
			return nil, err
		}
		rest = after
	}
	if n := len(p.pending); n > 0 {
		return nil, p.fault(p.pending[n-1].at, "(", "is not closed")
	}
	return p.ids, nil
}

// AppendToken appends a leaf's word.
func (t *tree) AppendToken(dst []byte, id int32) []byte {
	return appendToken(dst, t.tokens, id)
}

// cutSymbol returns the first parenthesis or leaf of text, empty when there is
// none, and what follows it.
func cutSymbol(text string) (symbol, rest string) {
	text = strings.TrimLeftFunc(text, unicode.IsSpace)
	if text == "" {
		return "", ""
	}
	if text[0] == '(' || text[0] == ')' {
		return text[:1], text[1:]
	}
	end := strings.IndexFunc(text, func(r rune) bool { return r == '(' || r == ')' || unicode.IsSpace(r) })
	if end < 0 {
		return text, ""
	}
	return text[:end], text[end:]
}

// treeParser is how far a tree was read.
type treeParser struct {
	text    string
	ids     []int32
	pending []pendingNode // the inner nodes that are open, outermost first
}

// pendingNode is an inner node that is open.
type pendingNode struct {
	at       int // of its parenthesis, in bytes
	children int
}

func (p *treeParser) open(at int) error {
	if err := p.child(at, "("); err != nil {
		return err
	}
	p.pending = append(p.pending, pendingNode{at: at})
	return nil
}

func (p *treeParser) close(at int) error {
	last := len(p.pending) - 1
	if last < 0 {
		return p.fault(at, ")", "closes nothing")
	}
	if n := p.pending[last].children; n != 2 {
		return p.fault(at, ")", "closes a node that has "+strconv.Itoa(n)+" of 2 children")
	}
	p.pending = p.pending[:last]
	p.ids = append(p.ids, InnerNode)
	return nil
}

func (p *treeParser) leaf(at int, word string, ids map[string]int32) error {
	if err := p.child(at, word); err != nil {
		return err
	}
	id, ok := ids[word]
	switch {
	case ok:
		p.ids = append(p.ids, id)
		return nil
	case !utf8.ValidString(word):
		return p.fault(at, word, notUTF8)
	default:
		return p.fault(at, word, notInVocab)
	}
}

// child counts a subtree that begins.
func (p *treeParser) child(at int, symbol string) error {
	last := len(p.pending) - 1
	switch {
	case last >= 0 && p.pending[last].children == 2:
		return p.fault(at, symbol, "is a third child, a node has 2")
	case last >= 0:
		p.pending[last].children++
	case len(p.ids) > 0:
		return p.fault(at, symbol, "comes after the end of the tree")
	}
	return nil
}

// fault says what is wrong with a symbol, at the index of its first character.
func (p *treeParser) fault(at int, symbol, message string) error {
	return encodeError(utf8.RuneCountInString(p.text[:at]), symbol, message)
}
