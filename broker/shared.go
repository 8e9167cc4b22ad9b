package broker

import (
	"container/heap"
	"container/list"
)

// shared is a list of values that belong to owners, which share its room. It
// knows the oldest value, the owner of most weight, and whose turn it is, each at
// a cost that does not grow with the values and at most with the logarithm of the
// number of owners. The zero value is empty. Its users lock it.
type shared[V any] struct {
	all    list.List // of *portion, oldest first
	owners map[string]*owner[V]
	turns  list.List // of *owner, who was served longest ago first
	most   byWeight[V]
}

// portion is a value in the list.
type portion[V any] struct {
	value      V
	weight     int
	owner      *owner[V]
	place, own *list.Element // among all, and among the owner's
}

// owner has at least one portion.
type owner[V any] struct {
	name     string
	portions list.List // oldest first
	weight   int
	turn     *list.Element
	place    int // in the heap
}

// add puts a value of an owner in. Its weight is positive.
func (s *shared[V]) add(name string, value V, weight int) *portion[V] {
	if s.owners == nil {
		s.owners = map[string]*owner[V]{}
	}
	o := s.owners[name]
	if o == nil {
		o = &owner[V]{name: name}
		s.owners[name] = o
		o.turn = s.turns.PushBack(o)
		heap.Push(&s.most, o)
	}
	p := &portion[V]{value: value, weight: weight, owner: o}
	p.place, p.own = s.all.PushBack(p), o.portions.PushBack(p)
	o.weight += weight
	heap.Fix(&s.most, o.place)
	return p
}

// remove takes out a portion that is in.
func (s *shared[V]) remove(p *portion[V]) {
	o := p.owner
	s.all.Remove(p.place)
	o.portions.Remove(p.own)
	if o.weight -= p.weight; o.portions.Len() > 0 {
		heap.Fix(&s.most, o.place)
		return
	}
	heap.Remove(&s.most, o.place)
	s.turns.Remove(o.turn)
	delete(s.owners, o.name)
}

// len returns the number of values.
func (s *shared[V]) len() int { return s.all.Len() }

// of returns the number of values of an owner.
func (s *shared[V]) of(name string) int {
	if o := s.owners[name]; o != nil {
		return o.portions.Len()
	}
	return 0
}

// oldest returns the portion that came first, nil when there is none.
func (s *shared[V]) oldest() *portion[V] { return first[V](&s.all) }

// surplus returns the oldest portion of the owner of most weight, nil when there
// is none.
func (s *shared[V]) surplus() *portion[V] {
	if len(s.most) == 0 {
		return nil
	}
	return first[V](&s.most[0].portions)
}

// next takes out the oldest portion of the owner who was served longest ago, nil
// when there is none.
func (s *shared[V]) next() *portion[V] {
	e := s.turns.Front()
	if e == nil {
		return nil
	}
	s.turns.MoveToBack(e)
	o, _ := e.Value.(*owner[V]) // nothing else is put in
	p := first[V](&o.portions)
	s.remove(p)
	return p
}

func first[V any](l *list.List) *portion[V] {
	e := l.Front()
	if e == nil {
		return nil
	}
	p, _ := e.Value.(*portion[V]) // nothing else is put in
	return p
}

// byWeight is a heap of owners, the heaviest on top.
type byWeight[V any] []*owner[V]

// Len implements [heap.Interface].
func (h byWeight[V]) Len() int { return len(h) }

// Less implements [heap.Interface].
func (h byWeight[V]) Less(i, j int) bool { return h[i].weight > h[j].weight }

// Swap implements [heap.Interface].
func (h byWeight[V]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements [heap.Interface].
func (h *byWeight[V]) Push(x any) {
	o, _ := x.(*owner[V])
	o.place = len(*h)
	*h = append(*h, o)
}

// Pop implements [heap.Interface].
func (h *byWeight[V]) Pop() any {
	last := len(*h) - 1
	o := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return o
}
