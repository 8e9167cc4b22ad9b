package cellrt_test

import (
	"testing"

	"github.com/cellmq/cellmq/cellrt"
)

// sharingBackend has executables that share weights.
type sharingBackend struct {
	idleBackend
	next *sharingExecutable
}

type sharingExecutable struct {
	idleBackend
	state  int64
	blocks map[string]int64
}

func (b *sharingBackend) Load(*cellrt.Program, int) (cellrt.Executable, error) { return b.next, nil }

func (x *sharingExecutable) StateBytes() int64 { return x.state }

func (x *sharingExecutable) WeightBytes() int64 {
	var sum int64
	for _, bytes := range x.blocks {
		sum += bytes
	}
	return sum
}

func (x *sharingExecutable) Blocks(yield func(any, int64) bool) {
	for id, bytes := range x.blocks {
		if !yield(id, bytes) {
			return
		}
	}
}

func TestFootprint(t *testing.T) {
	t.Parallel()
	b := &sharingBackend{}
	r, err := cellrt.New(cellrt.Config{}, b, newRecorder(t))
	if err != nil {
		t.Fatal(err)
	}
	load := func(state int64, blocks map[string]int64) *cellrt.Model {
		b.next = &sharingExecutable{state: state, blocks: blocks}
		m, err := r.Load(scriptProgram(t), 1)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	first := load(1000, map[string]int64{"embedding": 1, "old": 2})
	second := load(2000, map[string]int64{"embedding": 1, "new": 4})
	other := load(4000, map[string]int64{"other": 8})
	bare, err := cellrt.NewModel(scriptProgram(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		models []*cellrt.Model
		want   int64
	}{
		{"none", nil, 0},
		{"without a backend", []*cellrt.Model{bare}, 0},
		{"one", []*cellrt.Model{first}, 1003},
		{"one twice", []*cellrt.Model{first, first}, 1003},
		{"two that share", []*cellrt.Model{first, second}, 3007},
		{"all", []*cellrt.Model{first, second, other, bare}, 7015},
	} {
		if got := cellrt.Footprint(tc.models...); got != tc.want {
			t.Errorf("%s: %d bytes, want %d", tc.name, got, tc.want)
		}
	}
	if weights, state := second.Bytes(); weights != 5 || state != 2000 {
		t.Errorf("%d bytes of weights and %d of state, want 5 and 2000", weights, state)
	}
	if weights, state := bare.Bytes(); weights != 0 || state != 0 {
		t.Errorf("%d bytes of weights and %d of state without a backend", weights, state)
	}
}
