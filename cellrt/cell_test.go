package cellrt_test

import (
	"strings"
	"testing"

	"github.com/cellmq/cellmq/cellrt"
)

func TestLayout(t *testing.T) {
	t.Parallel()
	l := &cellrt.Layout{}
	a, b := l.Add("a", 3, 5), l.Add("b", 1, 2)
	if l.Offset(a) != 0 || l.Offset(b) != 15 || l.Size() != 17 || l.Fields() != 2 {
		t.Errorf("offsets %d and %d of %d values in %d fields", l.Offset(a), l.Offset(b), l.Size(), l.Fields())
	}
	if got, want := l.Field(a), (cellrt.Field{Name: "a", Count: 3, Width: 5}); got != want {
		t.Errorf("field %+v, want %+v", got, want)
	}
	for _, size := range [][2]int{{0, 1}, {1, 0}, {-1, 1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a field of %v values", size)
				}
			}()
			l.Add("bad", size[0], size[1])
		}()
	}
}

func TestCellBuilder(t *testing.T) {
	t.Parallel()
	layout := &cellrt.Layout{}
	f := layout.Add("field", 2, 4)
	m := func(rows, cols int) *cellrt.Matrix {
		return &cellrt.Matrix{Name: "weight", Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
	}
	v := func(n int) []float32 { return make([]float32, n) }
	for _, tc := range []struct {
		name string
		want string // in the error; empty for none
		fill func(b *cellrt.CellBuilder)
	}{
		{"good", "", func(b *cellrt.CellBuilder) {
			h, _ := b.LSTM(m(16, 3), m(16, 4), v(16), b.Embed(m(9, 3), 0), b.Load(f, 1), b.Load(f, cellrt.Zero))
			h = b.GRU(m(12, 4), m(12, 4), v(12), v(12), h, b.Attend(h, f, 1))
			b.Store(f, 1, 2, b.Linear(m(2, 8), nil, cellrt.Tanh, h, h))
			b.Greedy(h)
		}},
		{"empty", "no operations", func(*cellrt.CellBuilder) {}},
		{"argument", "argument 2 of 2", func(b *cellrt.CellBuilder) { b.Load(f, 2) }},
		{"negative argument", "argument -2 of 2", func(b *cellrt.CellBuilder) { b.Load(f, -2) }},
		{"matrix values", "weight is 3 x 4 with 5 values", func(b *cellrt.CellBuilder) {
			b.Embed(&cellrt.Matrix{Name: "weight", Rows: 3, Cols: 4, Data: v(5)}, 0)
		}},
		{"store too wide", "store of 4 values at column 1 of field field, which has 4", func(b *cellrt.CellBuilder) {
			b.Store(f, 0, 1, b.Load(f, 0))
		}},
		{"store at negative column", "column -1", func(b *cellrt.CellBuilder) { b.Store(f, 0, -1, b.Load(f, 0)) }},
		{"linear input", "weight has 5 columns, its input 8", func(b *cellrt.CellBuilder) {
			x := b.Load(f, 0)
			b.Linear(m(2, 5), nil, cellrt.None, x, x)
		}},
		{"linear bias", "weight bias: 3 values, want 2", func(b *cellrt.CellBuilder) { b.Linear(m(2, 4), v(3), cellrt.None, b.Load(f, 0)) }},
		{"lstm gates", "weight rows: 12 values, want 16", func(b *cellrt.CellBuilder) {
			x := b.Load(f, 0)
			b.LSTM(m(12, 4), m(16, 4), v(16), x, x, x)
		}},
		{"lstm bias", "weight bias: 15 values, want 16", func(b *cellrt.CellBuilder) {
			x := b.Load(f, 0)
			b.LSTM(m(16, 4), m(16, 4), v(15), x, x, x)
		}},
		{"gru columns", "weight columns: 3 values, want 4", func(b *cellrt.CellBuilder) {
			x := b.Load(f, 0)
			b.GRU(m(12, 4), m(12, 3), v(12), v(12), x, x)
		}},
		{"attention query", "attention query: 2 values, want 4", func(b *cellrt.CellBuilder) {
			b.Attend(b.Linear(m(2, 4), nil, cellrt.None, b.Load(f, 0)), f, 0)
		}},
		{"sum of two widths", "addend: 4 values, want 2", func(b *cellrt.CellBuilder) {
			x := b.Load(f, 0)
			b.Add(b.Linear(m(2, 4), nil, cellrt.None, x), x)
		}},
		{"mean", "argument 3 of 2", func(b *cellrt.CellBuilder) { b.Mean(b.Load(f, 0), 3) }},
		{"leaf gates", "weight rows: 11 values, want 9", func(b *cellrt.CellBuilder) { b.TreeLeaf(m(11, 4), v(11), b.Load(f, 0)) }},
		{"leaf input", "weight columns: 3 values, want 4", func(b *cellrt.CellBuilder) { b.TreeLeaf(m(9, 3), v(9), b.Load(f, 0)) }},
		{"leaf bias", "weight bias: 8 values, want 9", func(b *cellrt.CellBuilder) { b.TreeLeaf(m(9, 4), v(8), b.Load(f, 0)) }},
		{"node gates", "weight rows: 16 values, want 20", func(b *cellrt.CellBuilder) {
			x := b.Load(f, 0)
			b.TreeNode(m(16, 8), v(16), x, x, x, x)
		}},
		{"node children", "child state: 2 values, want 4", func(b *cellrt.CellBuilder) {
			x := b.Load(f, 0)
			b.TreeNode(m(20, 8), v(20), x, x, x, b.Linear(m(2, 4), nil, cellrt.None, x))
		}},
		{"node columns", "weight columns: 4 values, want 8", func(b *cellrt.CellBuilder) {
			x := b.Load(f, 0)
			b.TreeNode(m(20, 4), v(20), x, x, x, x)
		}},
		{"the first error stays", "argument 7 of 2", func(b *cellrt.CellBuilder) {
			b.Load(f, 7)
			b.Load(f, 8)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := cellrt.NewCell("cell", layout, 2)
			tc.fill(b)
			c, err := b.Build()
			if tc.want == "" {
				if err != nil || c.Args() != 2 || len(c.Ops()) != 9 || c.Values() != 8 {
					t.Errorf("cell %+v, error %v", c, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "cell cell: ") {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
	if _, err := cellrt.NewCell("cell", layout, cellrt.MaxArgs+1).Build(); err == nil {
		t.Error("more arguments than a node has")
	}
	if _, err := cellrt.NewProgram("empty", layout); err == nil {
		t.Error("a program without cells")
	}
}
