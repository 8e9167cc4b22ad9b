package kernel

// PanelWidth is the number of output columns in a panel.
const PanelWidth = 32

// Padded returns n rounded up to whole panels.
func Padded(n int) int { return (n + PanelWidth - 1) / PanelWidth * PanelWidth }

// Matrix is a packed weight matrix of N outputs and K inputs. It is read-only
// and safe for concurrent use.
type Matrix struct {
	N, K   int
	panels []float32
}

// Pack packs the horizontal concatenation of row-major matrices that all have
// rows rows; the one at index i has cols[i] columns.
func Pack(rows int, parts [][]float32, cols []int) *Matrix {
	k := 0
	for _, c := range cols {
		k += c
	}
	m := &Matrix{N: rows, K: k, panels: make([]float32, Padded(rows)*k)}
	from := 0
	for i, part := range parts {
		for n := range rows {
			panel := m.panel(n / PanelWidth)
			for c, w := range part[n*cols[i] : (n+1)*cols[i]] {
				panel[(from+c)*PanelWidth+n%PanelWidth] = w
			}
		}
		from += cols[i]
	}
	return m
}

// Panels returns the number of panels.
func (m *Matrix) Panels() int { return Padded(m.N) / PanelWidth }

// Bytes returns the size of the packed weights.
func (m *Matrix) Bytes() int64 { return int64(len(m.panels)) * 4 }

func (m *Matrix) panel(i int) []float32 {
	return m.panels[i*PanelWidth*m.K : (i+1)*PanelWidth*m.K]
}

// Rows is a block of row vectors: row r starts at Data[r*Stride].
type Rows struct {
	Data   []float32
	Stride int
}

// Row returns the first width elements of row r.
func (b Rows) Row(r, width int) []float32 {
	return b.Data[r*b.Stride : r*b.Stride+width]
}

// Fill sets each of the first rows rows to v, which may be shorter than the
// stride.
func (b Rows) Fill(rows int, v []float32) {
	for r := range rows {
		copy(b.Row(r, len(v)), v)
	}
}
