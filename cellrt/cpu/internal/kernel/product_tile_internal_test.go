//go:build amd64 && !purego

package kernel

import "testing"

// share divides evenly: no part is above the limit, and none is more than one
// larger than another.
func TestShare(t *testing.T) {
	t.Parallel()
	for most := 1; most <= 14; most++ {
		for n := 1; n <= 100; n++ {
			parts, smallest, largest := 0, n, 0
			for left := n; left > 0; parts++ {
				part := share(left, most)
				smallest, largest = min(smallest, part), max(largest, part)
				left -= part
			}
			if largest > most || largest-smallest > 1 || parts != (n+most-1)/most {
				t.Errorf("%d in parts of at most %d: %d parts of %d to %d", n, most, parts, smallest, largest)
			}
		}
	}
}
