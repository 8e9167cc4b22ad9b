package tokenizer_test

import (
	"encoding/json"
	"errors"
	"runtime"
	"testing"

	"github.com/cellmq/cellmq/models/tokenizer"
)

// allocationFactor is how many bytes may be allocated for each byte that is
// read: a token of a vocabulary has its text, its place in the list and its
// entry in one or two maps.
const allocationFactor = 256

// bounded wants read to allocate at most a multiple of its input, and a small
// constant. Others may allocate meanwhile, so the least of some runs counts.
func bounded(t *testing.T, input int, read func()) {
	t.Helper()
	for try := 0; ; try++ {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		read()
		runtime.ReadMemStats(&after)
		grown := after.TotalAlloc - before.TotalAlloc
		if grown <= uint64(allocationFactor*input+64<<10) {
			return
		}
		if try == 5 {
			t.Fatalf("%d bytes allocated for %d", grown, input)
		}
	}
}

// FuzzVocabulary reads a tokenizer's configuration and vocabulary. Whatever
// they say, a refusal is an error, and what is accepted encodes every token that
// it writes.
func FuzzVocabulary(f *testing.F) {
	for _, config := range []string{
		`"bytes"`, `"ids"`, `{"type":"characters","lowercase":true}`, `{"type":"words","separator":"|"}`,
		`{"type":"tree"}`, `{"type":"words","separator":""}`, `{"type":7}`, `[`,
	} {
		for _, vocabulary := range []string{letters, sounds, `["<inner>","a","b"]`, `["a","a"]`, `[""]`, `[1]`, `{}`, "[", ""} {
			for _, size := range []uint16{3, 6, 7} { // of the three vocabularies that are right
				f.Add([]byte(config), []byte(vocabulary), size)
			}
		}
	}
	f.Fuzz(func(t *testing.T, config, vocabulary []byte, size uint16) {
		var tok tokenizer.Tokenizer
		var err error
		bounded(t, len(config)+len(vocabulary), func() {
			var c tokenizer.Config
			if err = json.Unmarshal(config, &c); err == nil {
				tok, err = tokenizer.New(c, vocabulary, int(size))
			}
		})
		if err != nil {
			return
		}
		for id := range int32(min(size, 300)) {
			text := string(tok.AppendToken(nil, id))
			ids, err := tok.Encode(text)
			if err != nil {
				if _, ok := errors.AsType[*tokenizer.EncodeError](err); !ok {
					t.Fatalf("token %d, %q: %v is no EncodeError", id, text, err)
				}
				continue
			}
			for _, again := range ids {
				if again < 0 && again != tokenizer.InnerNode || again >= int32(size) {
					t.Fatalf("token %d, %q: id %d of %d", id, text, again, size)
				}
			}
		}
	})
}
