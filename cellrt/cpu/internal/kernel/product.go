package kernel

const (
	// chainColumns is how many columns advance side by side: enough chains to
	// hide the latency of an addition, few enough to stay in registers.
	chainColumns = 8
	// chainInputs is how many inputs a turn of the loop takes. All products of
	// the last one are formed before the chains advance, which spills some; the
	// more inputs in a turn, the less that costs.
	chainInputs = 4
	// turn is the reach of a turn of the loop in a panel.
	turn = (chainInputs-1)*PanelWidth + chainColumns
	// halfPanel is how many columns of a panel are worked on before the next
	// row: for 512 inputs their weights are 32 KiB and stay in the first-level
	// cache.
	halfPanel = PanelWidth / 2
)

// Accumulate adds a product to the first rows rows of y: for every output n,
//
//	y[r][n] = one chain over k in [from, from+width) of x[r][k-from] * m[n][k], starting with y[r][n]
//
// The stride of y is at least Padded(m.N), and what lies beyond m.N in a row
// may be overwritten.
func Accumulate(m *Matrix, y, x Rows, rows, from, width int) {
	AccumulatePanels(m, y, x, rows, from, width, 0, m.Panels())
}

// AccumulatePanels does the part of [Accumulate] for the outputs of panels
// first to last-1. Parts with different panels can run at the same time.
func AccumulatePanels(m *Matrix, y, x Rows, rows, from, width, first, last int) {
	for p := first; p < last; p++ {
		w := m.panel(p)[from*PanelWidth : (from+width)*PanelWidth]
		columns := min(PanelWidth, m.N-p*PanelWidth)
		for half := 0; half < columns; half += halfPanel {
			end := min(half+halfPanel, columns)
			for r := range rows {
				xr, yr := x.Row(r, width), y.Data[r*y.Stride+p*PanelWidth:]
				for c := half; c < end; c += chainColumns {
					chains((*[chainColumns]float32)(yr[c:]), xr, w, c)
				}
			}
		}
	}
}

// chains advances the chains of neighbouring columns over all of x.
func chains(y *[chainColumns]float32, x, w []float32, column int) {
	if len(x) == 0 {
		return
	}
	a0, a1, a2, a3 := y[0], y[1], y[2], y[3]
	a4, a5, a6, a7 := y[4], y[5], y[6], y[7]
	w = w[column:]
	for len(x) >= chainInputs && len(w) >= turn {
		k := (*[turn]float32)(w)
		v := x[0]
		a0 = float32(v*k[0]) + a0
		a1 = float32(v*k[1]) + a1
		a2 = float32(v*k[2]) + a2
		a3 = float32(v*k[3]) + a3
		a4 = float32(v*k[4]) + a4
		a5 = float32(v*k[5]) + a5
		a6 = float32(v*k[6]) + a6
		a7 = float32(v*k[7]) + a7
		v = x[1]
		a0 = float32(v*k[32]) + a0
		a1 = float32(v*k[33]) + a1
		a2 = float32(v*k[34]) + a2
		a3 = float32(v*k[35]) + a3
		a4 = float32(v*k[36]) + a4
		a5 = float32(v*k[37]) + a5
		a6 = float32(v*k[38]) + a6
		a7 = float32(v*k[39]) + a7
		v = x[2]
		a0 = float32(v*k[64]) + a0
		a1 = float32(v*k[65]) + a1
		a2 = float32(v*k[66]) + a2
		a3 = float32(v*k[67]) + a3
		a4 = float32(v*k[68]) + a4
		a5 = float32(v*k[69]) + a5
		a6 = float32(v*k[70]) + a6
		a7 = float32(v*k[71]) + a7
		v = x[3]
		a0 = float32(v*k[96]) + a0
		a1 = float32(v*k[97]) + a1
		a2 = float32(v*k[98]) + a2
		a3 = float32(v*k[99]) + a3
		a4 = float32(v*k[100]) + a4
		a5 = float32(v*k[101]) + a5
		a6 = float32(v*k[102]) + a6
		a7 = float32(v*k[103]) + a7
		x = x[chainInputs:]
		w = w[min(chainInputs*PanelWidth, len(w)):]
	}
	for i, v := range x {
		k := (*[chainColumns]float32)(w[i*PanelWidth:])
		a0 = float32(v*k[0]) + a0
		a1 = float32(v*k[1]) + a1
		a2 = float32(v*k[2]) + a2
		a3 = float32(v*k[3]) + a3
		a4 = float32(v*k[4]) + a4
		a5 = float32(v*k[5]) + a5
		a6 = float32(v*k[6]) + a6
		a7 = float32(v*k[7]) + a7
	}
	y[0], y[1], y[2], y[3] = a0, a1, a2, a3
	y[4], y[5], y[6], y[7] = a4, a5, a6, a7
}
