package cpu

import "github.com/cellmq/cellmq/cellrt"

var _ cellrt.States = (*executable)(nil)

// ReadState copies the state in a slot, from value number from on, into to. It
// must not run at the same time as a batch that has the slot.
func (x *executable) ReadState(slot int32, from int, to []float32) {
	copy(to, x.state(slot)[from:from+len(to)])
}

// WriteState copies values into the state in a slot, from value number to on.
// It must not run at the same time as a batch that has the slot.
func (x *executable) WriteState(slot int32, to int, values []float32) {
	copy(x.state(slot)[to:to+len(values)], values)
}

func (x *executable) state(slot int32) []float32 {
	size := x.layout.Size()
	return x.arena[int(slot)*size : (int(slot)+1)*size]
}
