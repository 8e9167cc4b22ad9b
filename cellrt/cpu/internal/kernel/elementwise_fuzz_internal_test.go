package kernel

import (
	"encoding/binary"
	"math"
	"testing"
)

// values reads float32 values of any bits.
func values(data []byte) []float32 {
	v := make([]float32, len(data)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return v
}

// addSeeds adds special values, and values in a row.
func addSeeds(f *testing.F) {
	f.Helper()
	var edges, plain []byte
	for i, v := range specials() {
		edges = binary.LittleEndian.AppendUint32(edges, math.Float32bits(v))
		plain = binary.LittleEndian.AppendUint32(plain, math.Float32bits(float32(i-20)/8))
	}
	f.Add(edges, uint8(3))
	f.Add(plain, uint8(17))
	f.Add(plain[:4], uint8(0))
}

// equal fails the test unless both are the same but for the bits of NaNs.
func equal(t *testing.T, what string, table *Table, got, want []float32) {
	t.Helper()
	for i := range want {
		if !same(got[i], want[i]) {
			t.Fatalf("%s %s: element %d is %g (%#x), want %g (%#x)", table.Name, what, i,
				got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

func clone(v []float32) []float32 { return append([]float32(nil), v...) }

func FuzzActivations(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte, _ uint8) {
		in := values(data)
		wantTanh, wantExps := clone(in), clone(in)
		tanhRow(wantTanh)
		largest := float32(0)
		if len(in) > 0 {
			largest = in[len(in)/2]
		}
		wantSum := exps(wantExps, largest)
		for _, table := range native() {
			got := clone(in)
			table.Tanh(got)
			equal(t, "tanh", table, got, wantTanh)
			got = clone(in)
			if sum := table.exps(got, largest); !same(sum, wantSum) {
				t.Fatalf("%s: sum of exps %g, want %g", table.Name, sum, wantSum)
			}
			equal(t, "exps", table, got, wantExps)
		}
	})
}

func FuzzGates(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte, which uint8) {
		in := values(data)
		if len(in) == 0 {
			return
		}
		for _, table := range native() {
			cases := gateCases()
			c := cases[int(which)%len(cases)]
			n := min(len(in), table.Width)
			var got, want [][]float32
			for i, length := range c.lengths(n, table.Width) {
				v := make([]float32, length)
				for j := range v {
					v[j] = in[(j*(i+3)+i)%len(in)]
				}
				got, want = append(got, v), append(want, clone(v))
			}
			c.run(&portable().elementwise, table.Width, want)
			c.run(&table.elementwise, table.Width, got)
			for i := range want {
				equal(t, c.name, table, got[i], want[i])
			}
		}
	})
}

func FuzzAttend(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte, count uint8) {
		in := values(data)
		width := len(in) / (int(count) + 1)
		query, memory := in[:width], in[width:width*(int(count)+1)]
		want, scores := make([]float32, width), make([]float32, count)
		portable().Attend(query, memory, scores, want)
		for _, table := range native() {
			got, gotScores := make([]float32, width), make([]float32, count)
			table.Attend(query, memory, gotScores, got)
			equal(t, "attention", table, got, want)
			if width > 0 {
				equal(t, "attention's shares", table, gotScores, scores)
			}
		}
	})
}

func FuzzGreedy(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte, _ uint8) {
		in := values(data)
		if len(in) == 0 {
			return
		}
		want, wantLog := portable().Greedy(in)
		for _, table := range native() {
			if got, gotLog := table.Greedy(in); got != want || !same(gotLog, wantLog) {
				t.Fatalf("%s: %d, %g, want %d, %g", table.Name, got, gotLog, want, wantLog)
			}
		}
	})
}
