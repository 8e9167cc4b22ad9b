package batching

import (
	"slices"
	"testing"

	"github.com/cellmq/cellmq/cellrt/sim"
)

func TestBuckets(t *testing.T) {
	t.Parallel()
	type take struct {
		lengths []int
		upper   int
	}
	for _, tc := range []struct {
		name    string
		width   int
		order   sim.Order
		most    int
		arrived []int
		want    []take
	}{
		{
			name: "bounds of a bucket", width: 10, most: 8, arrived: []int{10, 11, 1, 20, 21},
			want: []take{{[]int{10, 1}, 10}, {[]int{11, 20}, 20}, {[]int{21}, 30}},
		},
		{
			name: "buckets in turn", width: 10, most: 2, arrived: []int{1, 2, 3, 4, 5, 11, 12, 13, 31},
			want: []take{{[]int{1, 2}, 10}, {[]int{11, 12}, 20}, {[]int{31}, 40}, {[]int{3, 4}, 10}, {[]int{13}, 20}, {[]int{5}, 10}},
		},
		{
			name: "longest queue", width: 10, order: sim.LongestQueue, most: 2, arrived: []int{1, 11, 12, 13, 21, 22},
			want: []take{{[]int{11, 12}, 20}, {[]int{21, 22}, 30}, {[]int{1}, 10}, {[]int{13}, 20}},
		},
		{
			name: "width 1", width: 1, most: 9, arrived: []int{3, 2, 3},
			want: []take{{[]int{2}, 2}, {[]int{3, 3}, 3}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			b := buckets{width: tc.width, order: tc.order}
			for _, length := range tc.arrived {
				b.push(&answer{request: read(length)})
			}
			for i, want := range tc.want {
				batch, upper := b.take(tc.most, nil)
				if got := lengths(batch); !slices.Equal(got, want.lengths) || upper != want.upper {
					t.Errorf("batch %d: lengths %v of at most %d, want %v of at most %d", i, got, upper, want.lengths, want.upper)
				}
			}
			if batch, _ := b.take(tc.most, nil); len(batch) > 0 {
				t.Errorf("%v is left", lengths(batch))
			}
			b.push(&answer{request: read(5)})
			if batch, _ := b.take(tc.most, nil); !slices.Equal(lengths(batch), []int{5}) {
				t.Errorf("after all were empty: %v, want 5", lengths(batch))
			}
		})
	}
}
