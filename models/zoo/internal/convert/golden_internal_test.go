package main

import (
	"strings"
	"testing"
)

func TestWithWeights(t *testing.T) {
	t.Parallel()
	const sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" // of abc
	for _, tt := range []struct{ lines, want, refused string }{
		{"{\"a\":1.50}\n{\"b\":\"<\"}", `{"a":1.50,"weights_sha256":"` + sum + "\"}\n" + `{"b":"<","weights_sha256":"` + sum + "\"}\n", ""},
		{"", "", ""},
		{"{\"a\":1}\n{}\n", "", "line 2: an object with keys wanted"},
		{`{"weights_sha256":"0"}`, "", "line 1: weights_sha256 is there"},
		{"{\"a\":1}\n[]\n", "", "line 2: "},
	} {
		got, err := withWeights([]byte(tt.lines), []byte("abc"))
		if string(got) != tt.want || (err != nil) != (tt.refused != "") || err != nil && !strings.Contains(err.Error(), tt.refused) {
			t.Errorf("%q: %q, %v", tt.lines, got, err)
		}
	}
}
