package workload

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"

	"github.com/cellmq/cellmq/broker"
)

// Kind is what a model reads.
type Kind string

// The kinds of input.
const (
	// Words is words of lower-case letters, for a model that reads letters; the
	// length counts words.
	Words Kind = "words"
	// Text is one line of words; the length counts bytes.
	Text Kind = "text"
	// IDs is token ids below the vocabulary; the length counts them.
	IDs Kind = "ids"
	// Tree is nested list operations on digits; the length counts digits.
	Tree Kind = "tree"
)

// Kinds are all kinds.
func Kinds() []Kind { return []Kind{Words, Text, IDs, Tree} }

// Maker makes a model's inputs. Exactly one of Kind and Inputs counts.
type Maker struct {
	Kind Kind
	// Vocabulary bounds ids: they are 0 to Vocabulary-1.
	Vocabulary int
	// Inputs are taken in turn.
	Inputs []string
	// Labels says that the model answers with a label: parameters of generation are
	// not sent.
	Labels bool
	// Lengths of inputs when the plan has no law.
	Lengths Law
}

// Make draws an input of a length. number is the request's, from 0.
func (m *Maker) Make(random *rand.Rand, number, length int) broker.Input {
	if len(m.Inputs) > 0 {
		return broker.Input{Text: m.Inputs[number%len(m.Inputs)]}
	}
	switch m.Kind {
	case IDs:
		ids := make([]int32, length)
		for i := range ids {
			ids[i] = random.Int32N(int32(max(m.Vocabulary, 1)))
		}
		return broker.Input{IDs: ids, IsIDs: true}
	case Tree:
		var b strings.Builder
		listOps(&b, random, length)
		return broker.Input{Text: b.String()}
	case Text:
		var b strings.Builder
		for b.Len() < length {
			word(&b, random)
			b.WriteByte(' ')
		}
		return broker.Input{Text: strings.TrimSpace(b.String()[:length])}
	default:
		var b strings.Builder
		for i := range length {
			if i > 0 {
				b.WriteByte(' ')
			}
			word(&b, random)
		}
		return broker.Input{Text: b.String()}
	}
}

// word writes a pronounceable word of one to four syllables.
func word(b *strings.Builder, random *rand.Rand) {
	const consonants, vowels = "bcdfghjklmnprstvwz", "aeiou"
	for range 1 + random.IntN(4) {
		b.WriteByte(consonants[random.IntN(len(consonants))])
		b.WriteByte(vowels[random.IntN(len(vowels))])
	}
}

// listOps writes an expression of n digits in binary brackets, as the bundled
// model listops reads them: ( ( ( [MAX 2 ) 9 ) ] ).
func listOps(b *strings.Builder, random *rand.Rand, n int) {
	if n <= 1 {
		b.WriteByte(byte('0' + random.IntN(10)))
		return
	}
	operands := min(n, 2+random.IntN(3))
	sizes := make([]int, operands)
	for i := range sizes {
		sizes[i] = 1
	}
	for range n - operands {
		sizes[random.IntN(operands)]++
	}
	b.WriteString(strings.Repeat("( ", operands+1))
	b.WriteString([]string{"[MIN", "[MAX", "[MED", "[SM"}[random.IntN(4)])
	for _, size := range sizes {
		b.WriteByte(' ')
		listOps(b, random, size)
		b.WriteString(" )")
	}
	b.WriteString(" ] )")
}

// The bounds of a file of inputs.
const (
	longestLine = 1 << 20
	mostLines   = 1_000_000
)

// ReadInputs reads inputs, one a line: text, or an object with the key "input".
func ReadInputs(r io.Reader) ([]string, error) {
	var out []string
	err := eachLine(r, func(line string) error {
		if strings.HasPrefix(line, "{") {
			var object struct {
				Input *string `json:"input"`
			}
			if err := json.Unmarshal([]byte(line), &object); err == nil && object.Input != nil {
				line = *object.Input
			}
		}
		out = append(out, line)
		return nil
	})
	if err == nil && len(out) == 0 {
		err = errors.New("no input in the file")
	}
	return out, err
}

// eachLine calls f for each line that is not empty. Its error names the line.
func eachLine(r io.Reader, f func(line string) error) error {
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, longestLine)
	n := 0
	for scan.Scan() {
		n++
		line := strings.TrimSpace(scan.Text())
		if line == "" {
			continue
		}
		if n > mostLines {
			return fmt.Errorf("line %d: more than %d lines", n, mostLines)
		}
		if err := f(line); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := scan.Err(); err != nil {
		return fmt.Errorf("line %d: %w", n+1, err)
	}
	return nil
}
