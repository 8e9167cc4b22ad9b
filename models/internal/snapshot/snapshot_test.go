package snapshot_test

import (
	"errors"
	"math"
	"testing"

	"github.com/cellmq/cellmq/models/internal/snapshot"
)

func TestRoundTrip(t *testing.T) {
	t.Parallel()
	nan := math.Float32frombits(0x7fc00123)
	b := snapshot.AppendInt(nil, 0)
	b = snapshot.AppendInt(b, math.MaxInt)
	b = snapshot.AppendFloat(b, -0.5)
	b = snapshot.AppendFloat(b, nan)
	b = snapshot.AppendBool(b, true)
	b = snapshot.AppendBool(b, false)
	b = snapshot.AppendInt(b, 2)
	b = append(b, "abcd"...)
	r := snapshot.NewReader(b)
	if v := r.Int(0, 0); v != 0 {
		t.Errorf("%d, want 0", v)
	}
	if v := r.Int(0, math.MaxInt); v != math.MaxInt {
		t.Errorf("%d, want the largest", v)
	}
	if v := r.Float(); v != -0.5 {
		t.Errorf("%v, want -0.5", v)
	}
	if v := math.Float32bits(r.Float()); v != 0x7fc00123 {
		t.Errorf("bits %x, want those of the NaN", v)
	}
	if !r.Bool() || r.Bool() {
		t.Error("want true, then false")
	}
	if n := r.Count(2); n != 2 {
		t.Errorf("count %d, want 2", n)
	}
	if v := string(r.Bytes(3)); v != "abc" || r.Err() == nil {
		t.Errorf("%q, error %v with a byte left", v, r.Err())
	}
	if v := string(r.Rest()); v != "d" || r.Err() != nil || r.Failed() {
		t.Errorf("%q, error %v", v, r.Err())
	}
}

func TestMalformed(t *testing.T) {
	t.Parallel()
	large := snapshot.AppendInt(nil, 9)
	for name, read := range map[string]func(r *snapshot.Reader){
		"too large":          func(r *snapshot.Reader) { r.Int(0, 8) },
		"too small":          func(r *snapshot.Reader) { r.Int(10, 11) },
		"more than there is": func(r *snapshot.Reader) { r.Count(1) },
		"no float":           func(r *snapshot.Reader) { r.Float() },
		"no bool":            func(r *snapshot.Reader) { r.Bool() },
		"too many bytes":     func(r *snapshot.Reader) { r.Bytes(2) },
		"negative":           func(r *snapshot.Reader) { r.Bytes(-1) },
		"left over":          func(*snapshot.Reader) {},
		"failed":             func(r *snapshot.Reader) { r.Rest(); r.Fail() },
	} {
		r := snapshot.NewReader(large)
		read(r)
		if !errors.Is(r.Err(), snapshot.ErrMalformed) {
			t.Errorf("%s: %v, want %v", name, r.Err(), snapshot.ErrMalformed)
		}
	}
	r := snapshot.NewReader([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 1})
	if v := r.Int(0, math.MaxInt); v != 0 || !r.Failed() || r.Bool() || r.Int(0, 9) != 0 || r.Rest() != nil {
		t.Error("a reader went on after a number of more than 64 bits")
	}
}
