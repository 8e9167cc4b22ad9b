package cpu

import "github.com/cellmq/cellmq/cellrt"

// A recurrent operation writes its new states straight to the sequences'
// slots where a [cellrt.Store] of them follows. That moves the store forward,
// from its own place to that of the operation, and is the same as long as
// nobody can tell:
//
//   - No operation between the two reads the store's field (a Load, an Attend)
//     or writes it (another Store, whose values would otherwise have been
//     covered or kept). Entries and columns are not told apart: what they are
//     depends on a row's arguments.
//   - The operation itself reads values only, never slots. What its cell
//     loaded is a copy in the scratch, made before, so that one group of units
//     can be written while another one still reads all of the old state.
//   - Rows of a batch never write the same entries, so which row or group comes
//     first does not matter.
//   - Operations before it are not concerned: they have run for all rows.
//
// Since a store only ever moves forward over operations that do not touch its
// field, the order of all accesses to a field stays what it was, also when
// several stores move.

// target is where a store puts a value in a row's slot.
type target struct {
	place         place
	index         cellrt.Arg
	column, width int
}

func (c *cellCompiler) target(op cellrt.Store) target {
	return target{place: c.place(op.Field), index: op.Index, column: op.Column, width: c.cell.Width(op.In)}
}

// in returns the target's memory in a row's slot.
func (t *target) in(b *batch, r int) []float32 {
	return t.place.entry(b, r, b.arg(r, t.index))[t.column : t.column+t.width]
}

// output is a new state of a recurrent operation.
type output struct {
	value   cellrt.Value
	kept    bool     // operations read the value
	targets []target // of the stores that are done with it
}

// output settles where the value v of operation number i goes.
func (c *cellCompiler) output(i int, v cellrt.Value) output {
	out := output{value: v}
	touched := map[cellrt.FieldID]bool{}
	ops := c.cell.Ops()
	for j := i + 1; j < len(ops); j++ {
		switch op := ops[j].(type) {
		case cellrt.Load:
			touched[op.Field] = true
		case cellrt.Attend:
			touched[op.Memory] = true
		case cellrt.Store:
			if op.In == v && !touched[op.Field] {
				out.targets = append(out.targets, c.target(op))
				c.direct[j] = true
				c.uses[v]--
			}
			touched[op.Field] = true
		}
	}
	out.kept = c.uses[v] > 0 || len(out.targets) == 0
	return out
}

// at returns where the units from to to-1 of a row are to be computed.
func (o *output) at(b *batch, r, from, to int) []float32 {
	if len(o.targets) > 0 {
		return o.targets[0].in(b, r)[from:to]
	}
	return b.value(o.value).Row(r, to)[from:to]
}

// spread copies computed units to the other places they belong to.
func (o *output) spread(b *batch, r, from, to int, units []float32) {
	for i := 1; i < len(o.targets); i++ {
		copy(o.targets[i].in(b, r)[from:to], units)
	}
	if o.kept && len(o.targets) > 0 {
		copy(b.value(o.value).Row(r, to)[from:to], units)
	}
}
