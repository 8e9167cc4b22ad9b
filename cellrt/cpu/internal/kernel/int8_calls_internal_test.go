//go:build amd64 && !purego

package kernel

import "testing"

// No call of a product of 8-bit codes reads more weights or does more work than
// it may, and unfinished sums have room, whatever tiles a number of rows makes.
func TestInt8CallsAreShort(t *testing.T) {
	t.Parallel()
	const weights, multiplies = 512 << 10, 4 << 20
	for name, tc := range map[string]struct {
		tier   int8Tier
		layout codeLayout
		width  int
	}{
		"avx2":       {int8TierAVX2, pairs, 16},
		"avx512":     {int8TierAVX512, pairs, 32},
		"avx512vnni": {int8TierVNNI, quads, 32},
	} {
		for rows := 1; rows <= 64; rows++ {
			most, panels := tc.tier.shape(rows)
			tileRows := min(most, rows)
			inputs := callGroups(tileRows, panels, tc.layout) * int(tc.layout)
			columns := panels * tc.width
			if inputs < 1 || inputs*columns > weights || inputs*columns*tileRows > multiplies {
				t.Errorf("%s, %d rows: a call of %d inputs, %d rows and %d columns", name, rows, inputs, tileRows, columns)
			}
			if tileRows*columns > tileSums {
				t.Errorf("%s, %d rows: a tile of %d sums", name, rows, tileRows*columns)
			}
		}
	}
}
