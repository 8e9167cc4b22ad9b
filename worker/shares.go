package worker

import (
	"container/heap"
	"container/list"
	"strings"
	"time"
)

const (
	// maxRemembered bounds the ids of finished requests, the tombstones, and the
	// answers that a worker remembers, each. Client and id have bounds of their
	// own, so this bounds the bytes too.
	maxRemembered = 16384
	// tombstoneLife is how long a cancellation waits for its request.
	tombstoneLife = 5 * time.Minute
)

// requestKey names a request: ids are unique per client.
type requestKey struct{ client, id string }

// owner is the client.
func (k requestKey) owner() string { return k.client }

// clone returns a key that holds on to nothing else: what clients send is often
// part of something larger.
func (k requestKey) clone() requestKey {
	return requestKey{strings.Clone(k.client), strings.Clone(k.id)}
}

// owned is a key that belongs to a client.
type owned interface {
	comparable
	owner() string
}

// shares remembers values by keys that clients make, each for as long as its
// life. It is bounded, and fair: when it is full the client with the most keys
// loses its oldest one. So with n clients nobody who has at most the n-th part of
// the bound loses anything, whatever the others do. Its users lock it.
type shares[K owned, V any] struct {
	limit   int
	life    time.Duration
	known   map[K]*list.Element // of its owner's list
	clients map[string]*share
	most    byLength
}

// remembered is an entry of a share.
type remembered[K owned, V any] struct {
	key   K
	value V
	at    time.Time
}

// share is what one client has, oldest first.
type share struct {
	client string
	keys   list.List
	place  int // in the heap
}

func newShares[K owned, V any](limit int, life time.Duration) *shares[K, V] {
	return &shares[K, V]{limit: limit, life: life, known: map[K]*list.Element{}, clients: map[string]*share{}}
}

// add remembers a value, or again for the whole life.
func (s *shares[K, V]) add(key K, value V, now time.Time) {
	if e, ok := s.known[key]; ok {
		r := entry[K, V](e)
		r.value, r.at = value, now
		s.clients[key.owner()].keys.MoveToBack(e)
		return
	}
	own := s.clients[key.owner()]
	if own == nil {
		own = &share{client: key.owner()}
		s.clients[own.client] = own
		heap.Push(&s.most, own)
	}
	s.known[key] = own.keys.PushBack(&remembered[K, V]{key, value, now})
	heap.Fix(&s.most, own.place)
	for e := own.keys.Front(); e != nil && now.Sub(entry[K, V](e).at) >= s.life; e = own.keys.Front() {
		s.forget(own)
	}
	if len(s.known) > s.limit {
		s.forget(s.most[0])
	}
}

// forget drops the oldest key of a client.
func (s *shares[K, V]) forget(of *share) {
	delete(s.known, entry[K, V](of.keys.Front()).key)
	of.keys.Remove(of.keys.Front())
	if of.keys.Len() > 0 {
		heap.Fix(&s.most, of.place)
		return
	}
	heap.Remove(&s.most, of.place)
	delete(s.clients, of.client)
}

// get returns what is remembered.
func (s *shares[K, V]) get(key K, now time.Time) (value V, ok bool) {
	e, ok := s.known[key]
	if !ok {
		return value, false
	}
	r := entry[K, V](e)
	return r.value, now.Sub(r.at) < s.life
}

func entry[K owned, V any](e *list.Element) *remembered[K, V] {
	r, _ := e.Value.(*remembered[K, V]) // nothing else is put in
	return r
}

// byLength is a heap of shares, the longest on top.
type byLength []*share

// Len implements [heap.Interface].
func (h byLength) Len() int { return len(h) }

// Less implements [heap.Interface].
func (h byLength) Less(i, j int) bool { return h[i].keys.Len() > h[j].keys.Len() }

// Swap implements [heap.Interface].
func (h byLength) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements [heap.Interface].
func (h *byLength) Push(x any) {
	s, _ := x.(*share)
	s.place = len(*h)
	*h = append(*h, s)
}

// Pop implements [heap.Interface].
func (h *byLength) Pop() any {
	last := len(*h) - 1
	s := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return s
}
