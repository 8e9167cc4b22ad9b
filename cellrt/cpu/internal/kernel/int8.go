package kernel

import "math"

// int8Panels are weights as 8-bit codes: weight (n, k) is about
// codes * scale of n.
type int8Panels struct {
	codes  []int8    // [panel][k][column]
	scales []float32 // by packed column
}

func (p *int8Panels) bytes() int64 { return int64(len(p.codes)) + int64(len(p.scales))*4 }

const largestCode = 127

func packInt8(w Weights, panels []Panel, width int) int8Panels {
	packed := packF32(w, panels, width)
	out := int8Panels{codes: make([]int8, len(packed)), scales: make([]float32, len(panels)*width)}
	for p := range panels {
		panel := packed[p*width*w.K : (p+1)*width*w.K]
		for c := range width {
			var largest float32
			for k := range w.K {
				largest = max(largest, abs(panel[k*width+c]))
			}
			scale := largest / largestCode
			out.scales[p*width+c] = scale
			for k := range w.K {
				out.codes[(p*w.K+k)*width+c] = code(panel[k*width+c], scale)
			}
		}
	}
	return out
}

func code(x, scale float32) int8 {
	if scale == 0 {
		return 0
	}
	return int8(math.RoundToEven(float64(x / scale)))
}

func (in *Input) resetCodes(rows int) {
	in.stride = in.width
	if need := rows * in.stride; need > len(in.codes) {
		in.codes = make([]byte, need)
	}
	if rows > len(in.scales) {
		in.scales = make([]float32, rows)
	}
}

// quantize is the portable conversion of an input to codes.
func quantize(in *Input, from, to int) {
	for r := from; r < to; r++ {
		x := in.x.Row(r, in.width)
		var largest float32
		for _, v := range x {
			largest = max(largest, abs(v))
		}
		in.scales[r] = largest / largestCode
		for k, v := range x {
			in.codes[r*in.stride+k] = byte(code(v, in.scales[r]))
		}
	}
}

// productInt8 is the portable product of 8-bit codes: exact in integers, then
// y = init + (sum * scale of the output) * scale of the row.
func productInt8(m *Matrix, y, init Rows, x *Input, rows, first, last int) {
	width := m.table.Width
	for p := first; p < last; p++ {
		w := m.int8.codes[p*width*m.K : (p+1)*width*m.K]
		for r := range rows {
			at := (p - first) * width
			yr, ir := y.Row(r, at+width)[at:], init.Row(r, at+width)[at:]
			codes := x.codes[r*x.stride : r*x.stride+m.K]
			for c := range width {
				var sum int32
				for k, v := range codes {
					sum += int32(int8(v)) * int32(w[k*width+c])
				}
				yr[c] = fma(float32(float32(sum)*m.int8.scales[p*width+c]), x.scales[r], ir[c])
			}
		}
	}
}
