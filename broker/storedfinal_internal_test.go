package broker

import (
	"errors"
	"testing"
)

// TestLeaseOfAFinal reads leases with and without a sequence, and refuses what
// is neither.
func TestLeaseOfAFinal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]StoredFinal{
		"w/1/2":       {Worker: "w", Epoch: 1, Attempt: 2},
		"w/1/2#3":     {Worker: "w", Epoch: 1, Attempt: 2, Sequence: 3},
		"a/b#7/1/2#3": {Worker: "a/b#7", Epoch: 1, Attempt: 2, Sequence: 3},
		"a/9/1/2":     {Worker: "a/9", Epoch: 1, Attempt: 2},
		"/1/2#0":      {Epoch: 1, Attempt: 2},
		"w/1/18446744073709551615#18446744073709551615": {Worker: "w", Epoch: 1, Attempt: 1<<64 - 1, Sequence: 1<<64 - 1},
	} {
		var got StoredFinal
		if err := got.readLease(text); err != nil || got.lease() != want.lease() {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "w", "w/1", "w/1/", "w/1/2#", "w/1/2#x", "w/1/2#3#4", "w/x/2#3", "w#3/1/x", "\x01/1/2"} {
		if err := new(StoredFinal).readLease(text); !errors.Is(err, ErrBadRecord) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
