package kernel

import (
	"fmt"
	"math"
)

// The numbers of the format [Int8]. A vector v, an output's weights or an
// input row, becomes codes between -127 and 127 and one scale:
//
//	scale = largest/127     code = v * (127/largest) rounded to nearest even
//
// where largest is the largest magnitude in v and every operation rounds to
// float32. The two roundings before the last move 127 by less than a half, so
// that no code needs clamping. A vector whose largest magnitude is below
// leastLargest counts as zero: codes and scale are 0. A vector with a NaN or an
// infinity has codes 0 and the scale NaN, which makes NaN of all its results.
// Then
//
//	y = fma(float32(sum) * scale of the output, scale of the row, init)
//
// with the sum of the products of codes, which is exact in 32 bits as
// MaxInt8Inputs products of at most 127*127 fit into them. A kernel may let
// intermediate sums wrap around, since only the final one matters.
const (
	largestCode = 127
	// MaxInt8Inputs is the largest K of an [Int8] matrix.
	MaxInt8Inputs = 1 << 17
	// leastLargest keeps 127/largest finite and the scale a normal number.
	leastLargest = 0x1p-100
)

// codeLayout is how a table arranges codes: so many inputs of one output stand
// next to each other, zeros following the last input. Weights are signed bytes,
// [panel][group][column][input of the group]. What stands after the last code of an
// input is multiplied by such zeros.
type codeLayout int

const (
	singles codeLayout = 1 // input codes are bytes
	pairs   codeLayout = 2 // input codes are signed 16-bit words
	quads   codeLayout = 4 // input codes are bytes
)

// inputBytes returns the bytes that the codes of a row of width values take.
func (l codeLayout) inputBytes(width int) int {
	bytes := l.groups(width) * int(l)
	if l == pairs {
		bytes *= 2
	}
	return bytes
}

// groups returns how many groups k inputs take.
func (l codeLayout) groups(k int) int { return (k + int(l) - 1) / int(l) }

// int8Panels are weights as 8-bit codes: weight (n, k) is about
// codes * scale of n.
type int8Panels struct {
	codes  []int8    // [panel][group][column][input of the group]
	scales []float32 // by packed column
	start  []int32   // what a column's sum starts from, which undoes the inputs' excess
}

// packInt8 gives every output its own scale.
func packInt8(w Weights, panels []Panel, t *Table) int8Panels {
	if w.K > MaxInt8Inputs {
		panic(fmt.Sprintf("kernel: %d inputs in 8-bit codes, at most %d", w.K, MaxInt8Inputs))
	}
	group, columns := int(t.layout), len(panels)*t.Width
	panelSize := t.layout.groups(w.K) * group * t.Width
	out := int8Panels{
		codes:  aligned[int8](len(panels) * panelSize),
		scales: make([]float32, columns),
		start:  make([]int32, columns),
	}
	for i, p := range panels {
		panel := out.codes[i*panelSize:]
		for c := range p.Count {
			row := w.output(p.First + c)
			scale, inverse := codeScale(largestBits(row))
			out.scales[i*t.Width+c] = scale
			if inverse == 0 {
				continue
			}
			var sum int32
			for k, v := range row {
				q := code(v, inverse)
				sum += int32(q)
				panel[(k/group*t.Width+c)*group+k%group] = q
			}
			out.start[i*t.Width+c] = -t.excess * sum
		}
	}
	return out
}

// largestBits returns the bits of the largest magnitude in v. As integers,
// magnitudes are in order, with the infinity and then the NaNs at the end.
func largestBits(v []float32) uint32 {
	var largest uint32
	for _, x := range v {
		largest = max(largest, math.Float32bits(x)&math.MaxInt32)
	}
	return largest
}

// codeScale returns the scale of a vector and the factor that makes codes of
// its values, which is 0 if all codes are 0.
func codeScale(largestBits uint32) (scale, inverse float32) {
	largest := math.Float32frombits(largestBits)
	switch {
	case largestBits >= 0x7f800000:
		return float32(math.NaN()), 0
	case largest < leastLargest:
		return 0, 0
	}
	return largest / largestCode, largestCode / largest
}

func code(x, inverse float32) int8 {
	return int8(math.RoundToEven(float64(float32(x * inverse))))
}

// resetCodes makes room for the codes of rows rows. The stride is an odd number
// of cache lines, so that the rows of a tile spread over the sets of a cache.
// Kernels may write whole lines of a row's codes.
func (in *Input) resetCodes(rows int) {
	in.stride = ((in.table.layout.inputBytes(in.width)+cacheLine-1)/cacheLine | 1) * cacheLine
	if need := rows * in.stride; need > len(in.codes) {
		in.codes = make([]byte, need)
	}
	if rows > len(in.scales) {
		in.scales = make([]float32, rows)
	}
}
