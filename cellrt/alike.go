package cellrt

import (
	"reflect"
	"slices"
)

// alike reports whether two programs differ in nothing but names and the values of
// their weights: their steps take equally long.
func (p *Program) alike(o *Program) bool {
	sameField := func(a, b Field) bool { return a.Count == b.Count && a.Width == b.Width }
	return p.Weights == o.Weights && slices.EqualFunc(p.Layout.fields, o.Layout.fields, sameField) &&
		slices.EqualFunc(p.Cells, o.Cells, (*Cell).alike)
}

func (c *Cell) alike(o *Cell) bool {
	return c.MaxRows == o.MaxRows && c.LookAhead == o.LookAhead && c.args == o.args &&
		slices.Equal(c.widths, o.widths) && slices.EqualFunc(c.ops, o.ops, alikeOps)
}

// alikeOps compares two operations but for the values of matrices and biases.
func alikeOps(a, b Op) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	if x.Type() != y.Type() {
		return false
	}
	for i := range x.NumField() {
		var same bool
		switch f, g := x.Field(i).Interface(), y.Field(i).Interface(); f := f.(type) {
		case *Matrix:
			m := g.(*Matrix) //nolint:forcetypeassert // the types are one
			same = f.Rows == m.Rows && f.Cols == m.Cols
		case []float32:
			same = len(f) == len(g.([]float32)) //nolint:forcetypeassert // as above
		case []Value:
			same = slices.Equal(f, g.([]Value)) //nolint:forcetypeassert // as above
		default:
			same = f == g
		}
		if !same {
			return false
		}
	}
	return true
}
