//go:build unix

package kernel

import "testing"

func TestRoutinesStayInBounds(t *testing.T) {
	t.Parallel()
	const largest = 9 * 300
	forRoutines(t, func(r routineTest) {
		var fences [5]fence
		for i := range fences {
			fences[i] = newFence(r.T, 4*largest)
		}
		for _, n := range r.testSizes(r.table.Width) {
			if n > 300 {
				break
			}
			r.check(n, 1, false, func(i, length int) []float32 { return fences[i].atEnd(length) })
			r.check(n, 1, false, func(i, length int) []float32 { return fences[i].atStart(length) })
		}
	})
}
