package safetensors_test

import (
	"bytes"
	"fmt"
	"math"
	"testing"

	"github.com/cellmq/cellmq/models/safetensors"
)

// TestNotFinite puts each value that is not finite at each place of tensors of
// every type, beside the largest and the smallest ones that are.
func TestNotFinite(t *testing.T) {
	t.Parallel()
	for dtype, largest := range map[safetensors.DType]float32{
		safetensors.F32: math.MaxFloat32, safetensors.F16: 65504, safetensors.BF16: 0x1.fep127,
	} {
		good := []float32{largest, -largest, 0, 0x1p-24, -1}
		check := func(what string, values []float32, want int) {
			t.Helper()
			var b bytes.Buffer
			if err := safetensors.Write(&b, []safetensors.Values{{Name: "a", DType: dtype, Shape: []int{len(values)}, Data: values}}, nil); err != nil {
				t.Fatal(err)
			}
			f, err := safetensors.Parse(b.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			tensor, _ := f.Tensor("a")
			if i, found := tensor.NotFinite(); found != (want >= 0) || found && i != want {
				t.Errorf("%s, %s: index %d, %t; want %d", dtype, what, i, found, want)
			}
		}
		check("all finite", good, -1)
		check("empty", nil, -1)
		for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			for at := range good {
				values := append([]float32(nil), good...)
				values[at] = float32(bad)
				check(fmt.Sprint(bad, " at ", at), values, at)
			}
		}
	}
}
