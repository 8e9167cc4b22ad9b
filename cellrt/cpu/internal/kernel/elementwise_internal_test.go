package kernel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// routineCase calls one routine of a table on slices of given lengths.
type routineCase struct {
	name string
	// units says that n is at most a panel's width.
	units   bool
	lengths func(n, width int) []int
	// run returns what the routine returns, as bits.
	run func(e *elementwise, width int, s [][]float32) uint64
}

// entries returns a number of attention entries for vectors of n elements.
func entries(n int) int { return 1 + n%9 }

func routineCases() []routineCase {
	return append(gateCases(), vectorCases()...)
}

func gateCases() []routineCase {
	states := func(gates, states int) func(n, width int) []int {
		return func(n, width int) []int {
			lengths := []int{gates * width}
			for range states {
				lengths = append(lengths, n)
			}
			return lengths
		}
	}
	gates := func(name string, lengths func(n, width int) []int, run func(e *elementwise, width int, s [][]float32)) routineCase {
		return routineCase{name: name, units: true, lengths: lengths, run: func(e *elementwise, width int, s [][]float32) uint64 {
			run(e, width, s)
			return 0
		}}
	}
	return []routineCase{
		gates("lstm", states(4, 3), func(e *elementwise, width int, s [][]float32) { e.lstm(s[0], width, s[1], s[2], s[3]) }),
		gates("lstm in place", states(4, 2), func(e *elementwise, width int, s [][]float32) { e.lstm(s[0], width, s[1], s[1], s[2]) }),
		gates("lstm over its cells", states(4, 2), func(e *elementwise, width int, s [][]float32) { e.lstm(s[0], width, s[1], s[2], s[1]) }),
		gates("gru", states(4, 2), func(e *elementwise, width int, s [][]float32) { e.gru(s[0], width, s[1], s[2]) }),
		gates("gru in place", states(4, 1), func(e *elementwise, width int, s [][]float32) { e.gru(s[0], width, s[1], s[1]) }),
		gates("tree leaf", states(3, 2), func(e *elementwise, width int, s [][]float32) { e.treeLeaf(s[0], width, s[1], s[2]) }),
		gates("tree node", states(5, 4), func(e *elementwise, width int, s [][]float32) { e.treeNode(s[0], width, s[1], s[2], s[3], s[4]) }),
		gates("tree node in place", states(5, 2), func(e *elementwise, width int, s [][]float32) { e.treeNode(s[0], width, s[1], s[2], s[1], s[2]) }),
		gates("tree node of one child twice", states(5, 3), func(e *elementwise, width int, s [][]float32) { e.treeNode(s[0], width, s[1], s[1], s[2], s[3]) }),
	}
}

func vectorCases() []routineCase {
	vectors := func(counts ...int) func(n, width int) []int { // -1 for n
		return func(n, _ int) []int {
			var lengths []int
			for _, c := range counts {
				if c < 0 {
					c = n
				}
				lengths = append(lengths, c)
			}
			return lengths
		}
	}
	attention := func(n, _ int) []int { return []int{n, entries(n) * n, entries(n)} }
	return []routineCase{
		{name: "tanh", lengths: vectors(-1), run: func(e *elementwise, _ int, s [][]float32) uint64 { e.tanh(s[0]); return 0 }},
		{name: "dots", lengths: attention, run: func(e *elementwise, _ int, s [][]float32) uint64 { e.dots(s[0], s[1], s[2]); return 0 }},
		{name: "dots of products that vanish", lengths: attention, run: func(e *elementwise, _ int, s [][]float32) uint64 {
			for i := range s[0] {
				s[0][i] = 0x1p-100
			}
			for i := range s[1] {
				s[1][i] = -0x1p-100
			}
			e.dots(s[0], s[1], s[2]) // every lane that has a product is -0
			return 0
		}},
		{name: "weigh", lengths: attention, run: func(e *elementwise, _ int, s [][]float32) uint64 { e.weigh(s[0], s[1], s[2]); return 0 }},
		{name: "exps", lengths: vectors(-1, 1), run: func(e *elementwise, _ int, s [][]float32) uint64 {
			return bits64(float64(e.exps(s[0], s[1][0])))
		}},
		{name: "divide", lengths: vectors(-1, 1), run: func(e *elementwise, _ int, s [][]float32) uint64 { e.divide(s[0], s[1][0]); return 0 }},
		{name: "add", lengths: vectors(-1, -1, -1), run: func(e *elementwise, _ int, s [][]float32) uint64 { e.addVector(s[0], s[1], s[2]); return 0 }},
		{name: "add in place", lengths: vectors(-1, -1), run: func(e *elementwise, _ int, s [][]float32) uint64 { e.addVector(s[0], s[0], s[1]); return 0 }},
		{name: "largest", lengths: vectors(-1), run: func(e *elementwise, _ int, s [][]float32) uint64 {
			largest, finite := e.largest(s[0])
			if finite {
				return bits64(float64(largest+0)) | 1 // no float32 has that bit, and +0 is as good as -0
			}
			return bits64(float64(largest + 0))
		}},
		{name: "find", lengths: vectors(-1, 1), run: func(e *elementwise, _ int, s [][]float32) uint64 {
			if n := len(s[0]); n > 0 && n%5 > 0 {
				s[1][0] = s[0][n/2]
			}
			return uint64(e.find(s[0], s[1][0]))
		}},
		{name: "find a zero that is not there", lengths: vectors(-1), run: func(e *elementwise, _ int, s [][]float32) uint64 {
			for i, x := range s[0] {
				if x == 0 {
					s[0][i] = 1
				}
			}
			return uint64(e.find(s[0], 0))
		}},
		{name: "largest of negative ones", lengths: vectors(-1), run: func(e *elementwise, _ int, s [][]float32) uint64 {
			for i, x := range s[0] {
				s[0][i] = -abs(x)
			}
			largest, _ := e.largest(s[0])
			return bits64(float64(largest + 0))
		}},
		{name: "sum of exps", lengths: vectors(-1, 1), run: func(e *elementwise, _ int, s [][]float32) uint64 {
			return bits64(e.sumExp(s[0], s[1][0]))
		}},
	}
}

// bits64 returns the bits of x, those of one NaN for all.
func bits64(x float64) uint64 {
	if x != x {
		return math.Float64bits(math.NaN())
	}
	return math.Float64bits(x)
}

// specials are values at the edges of float32 and of the activations.
func specials() []float32 {
	bits := math.Float32frombits
	inf := float32(math.Inf(1))
	values := []float32{
		0, 1, inf, bits(0x7fc00000), bits(0x7f800001), bits(0x7fc001ff), bits(1), bits(0x7fffff), bits(0x800000),
		math.MaxFloat32, 3e38, 1e30, 16777216, 12582912, 9.0109, 10, 10.0001, 0.625, 0.34657359, 0.34657360,
		17.3, 44.36, 87.33, 88, 88.72, 88.73, 89, 89.1, 103.2, 103.97, 104, 104.1, 150, 1e-30, 2.5e-39, 1e-8,
	}
	for _, v := range values[:len(values):len(values)] {
		values = append(values, -v)
	}
	return values
}

// fill fills s with values such as networks have, or with special ones among
// them.
func fill(s []float32, random *rand.Rand, edgy bool) {
	edges := specials()
	for i := range s {
		s[i] = float32(random.NormFloat64() * 3)
		if edgy && random.IntN(4) == 0 {
			s[i] = edges[random.IntN(len(edges))]
		}
	}
}

// same says whether two values are the same bits or both NaN.
func same(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b }

// compare runs the case for a table and for the portable one and compares.
// Place returns a slice of that length for the table to work on.
func (c *routineCase) compare(t *testing.T, table *Table, n int, seed uint64, edgy bool, place func(i, length int) []float32) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, uint64(n)))
	var got, want [][]float32
	for i, length := range c.lengths(n, table.Width) {
		values := make([]float32, length)
		fill(values, random, edgy)
		placed := place(i, length)
		copy(placed, values)
		want, got = append(want, values), append(got, placed)
	}
	wantResult := c.run(&portable().elementwise, table.Width, want)
	gotResult := c.run(&table.elementwise, table.Width, got)
	if gotResult != wantResult {
		t.Errorf("%s %s of %d (seed %d): result %#x, want %#x", table.Name, c.name, n, seed, gotResult, wantResult)
	}
	for i := range want {
		for j := range want[i] {
			if !same(got[i][j], want[i][j]) {
				t.Errorf("%s %s of %d (seed %d): slice %d element %d is %g (%#x), want %g (%#x)", table.Name, c.name, n, seed, i, j,
					got[i][j], math.Float32bits(got[i][j]), want[i][j], math.Float32bits(want[i][j]))
				return
			}
		}
	}
}

// testSizes returns the lengths to test.
func (c *routineCase) testSizes(width int) []int {
	var sizes []int
	for n := range 71 {
		if !c.units || n <= width {
			sizes = append(sizes, n)
		}
	}
	if !c.units {
		sizes = append(sizes, 100, 127, 128, 129, 255, 256, 300, 511, 1000)
	}
	return sizes
}

// routineTest is a test of one routine of one table.
type routineTest struct {
	*testing.T
	*routineCase

	table *Table
}

// check runs the routine for one length.
func (r routineTest) check(n int, seed uint64, edgy bool, place func(i, length int) []float32) {
	r.Helper()
	r.compare(r.T, r.table, n, seed, edgy, place)
}

// forRoutines runs f in a parallel test for each routine of each table in
// assembly.
func forRoutines(t *testing.T, f func(r routineTest)) {
	t.Helper()
	for _, table := range native() {
		for _, c := range routineCases() {
			t.Run(table.Name+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				f(routineTest{T: t, routineCase: &c, table: table})
			})
		}
	}
}

func TestRoutinesAreTheSameInEveryTable(t *testing.T) {
	t.Parallel()
	forRoutines(t, func(r routineTest) {
		plain := func(_, length int) []float32 { return make([]float32, length) }
		for _, n := range r.testSizes(r.table.Width) {
			for seed := range uint64(6) {
				r.check(n, seed, seed%2 == 1, plain)
			}
		}
	})
}

func TestRoutinesAtEveryOffset(t *testing.T) {
	t.Parallel()
	forRoutines(t, func(r routineTest) {
		for offset := range 16 {
			shifted := func(i, length int) []float32 {
				from := (offset * (i + 1)) % 16
				return make([]float32, from+length)[from:]
			}
			for _, n := range []int{1, 7, 13, 16, 31} {
				r.check(min(n, r.table.Width), uint64(offset), false, shifted)
			}
		}
	})
}

// TestActivationsOfAllTablesEverywhere compares over the whole range of
// float32.
func TestActivationsOfAllTablesEverywhere(t *testing.T) {
	t.Parallel()
	var inputs []float32
	sweep(func(x float32) { inputs = append(inputs, x) })
	inputs = append(inputs, specials()...)
	for _, table := range native() {
		t.Run(table.Name, func(t *testing.T) {
			t.Parallel()
			v := append([]float32(nil), inputs...)
			table.Tanh(v)
			for i, x := range inputs {
				if want := tanh(x); !same(v[i], want) {
					t.Fatalf("tanh(%g) = %g, want %g", x, v[i], want)
				}
			}
			copy(v, inputs)
			table.exps(v, 0)
			for i, x := range inputs {
				if want := exp(x); !same(v[i], want) {
					t.Fatalf("exp(%g) = %g, want %g", x, v[i], want)
				}
			}
			// With a zero for the cell only sigmoid and tanh of the gates are left.
			gates, c, h := make([]float32, 3*table.Width), make([]float32, 1), make([]float32, 1)
			for i := range min(len(inputs), 200_000) {
				x := inputs[(i*7919)%len(inputs)]
				gates[0], gates[table.Width], gates[2*table.Width] = x, x, 20
				table.TreeLeaf(gates, h, c)
				if want := sigmoid(x); !same(c[0], want) {
					t.Fatalf("sigmoid(%g) = %g, want %g", x, c[0], want)
				}
			}
		})
	}
}

func TestRoutinesDoNotAllocate(t *testing.T) {
	for _, table := range Tables() {
		for _, c := range routineCases() {
			var s [][]float32
			for _, length := range c.lengths(13, table.Width) {
				s = append(s, make([]float32, length))
			}
			if n := testing.AllocsPerRun(10, func() { c.run(&table.elementwise, table.Width, s) }); n != 0 {
				t.Errorf("%s %s: %g allocations", table.Name, c.name, n)
			}
		}
		v, gates := make([]float32, 13), make([]float32, 5*table.Width)
		n := testing.AllocsPerRun(10, func() {
			table.Tanh(v)
			table.Add(v, v, v)
			table.Attend(v, v, v[:1], gates[:13])
			table.Greedy(v)
			table.LSTM(gates, v, v, v)
			table.GRU(gates, v, v)
			table.TreeLeaf(gates, v, v)
			table.TreeNode(gates, v, v, v, v)
		})
		if n != 0 {
			t.Errorf("%s: %g allocations of its methods", table.Name, n)
		}
	}
}

// BenchmarkActivation reports the time an element takes.
func BenchmarkActivation(b *testing.B) {
	const n = 4096
	v := make([]float32, n)
	for _, table := range Tables() {
		for _, bc := range []struct {
			name string
			run  func()
		}{
			{"tanh", func() { table.tanh(v) }},
			{"exps", func() { table.exps(v, 1) }},
			{"divide", func() { table.divide(v, 1) }},
			{"sumExp", func() { table.sumExp(v, 1) }},
			{"largest", func() { table.largest(v) }},
			{"find", func() { table.find(v, 1e9) }},
			{"add", func() { table.addVector(v, v, v) }},
		} {
			b.Run(fmt.Sprintf("%s/%s", table.Name, bc.name), func(b *testing.B) {
				b.ReportAllocs()
				fill(v, rand.New(rand.NewPCG(1, 2)), false)
				for b.Loop() {
					bc.run()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/element")
			})
		}
	}
}

// BenchmarkGates reports the time a unit takes, a panel's width at a call.
func BenchmarkGates(b *testing.B) {
	for _, table := range Tables() {
		for _, c := range gateCases() {
			switch c.name {
			case "lstm", "gru", "tree leaf", "tree node":
			default:
				continue
			}
			b.Run(table.Name+"/"+c.name, func(b *testing.B) {
				b.ReportAllocs()
				var s [][]float32
				for _, length := range c.lengths(table.Width, table.Width) {
					v := make([]float32, length)
					fill(v, rand.New(rand.NewPCG(1, 2)), false)
					s = append(s, v)
				}
				for b.Loop() {
					c.run(&table.elementwise, table.Width, s)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(table.Width), "ns/unit")
			})
		}
	}
}
