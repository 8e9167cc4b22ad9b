package cellrt

import "fmt"

// FieldID names a field of a [Layout].
type FieldID int

// Field is one named part of a sequence's state: Count entries of Width
// float32 values each. A decoder's hidden state is one entry; the encoder
// memory that attention reads has an entry for each source position.
type Field struct {
	Name  string
	Count int
	Width int
}

// Layout describes the state that one sequence keeps in its slot. The cells of
// a program share one layout: what one cell stores another can load.
//
// A layout is built once while a model loads and is read-only afterwards; it
// is then safe for concurrent use.
type Layout struct {
	fields  []Field
	offsets []int
	size    int
}

// Add appends a field of count entries of width values and returns its ID. It
// panics when either is not positive: sizes are checked where a model's
// configuration is read.
func (l *Layout) Add(name string, count, width int) FieldID {
	if count <= 0 || width <= 0 {
		panic(fmt.Sprintf("cellrt: field %q has size %d x %d", name, count, width))
	}
	l.fields = append(l.fields, Field{Name: name, Count: count, Width: width})
	l.offsets = append(l.offsets, l.size)
	l.size += count * width
	return FieldID(len(l.fields) - 1)
}

// Field returns the field with the given ID.
func (l *Layout) Field(id FieldID) Field { return l.fields[id] }

// Offset returns where the field starts in a slot, in float32 values.
func (l *Layout) Offset(id FieldID) int { return l.offsets[id] }

// entries returns where a span of entries begins in a slot and how many values
// it has.
func (l *Layout) entries(s Span) (offset, size int) {
	width := l.fields[s.Field].Width
	return l.offsets[s.Field] + s.From*width, (s.To - s.From) * width
}

// Fields returns the number of fields.
func (l *Layout) Fields() int { return len(l.fields) }

// Size returns the number of float32 values in a slot.
func (l *Layout) Size() int { return l.size }
