package broker

import (
	"math/rand/v2"
	"strconv"
	"testing"
)

// TestShared compares the list with a plain one, under every operation.
func TestShared(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	type value struct{ number, weight int }
	var s shared[value]
	var plain []*portion[value] // oldest first
	served := map[string]int{}  // when each owner was served, or came
	for now := 1; now <= 20000; now++ {
		var out *portion[value]
		switch op := rng.IntN(8); {
		case op < 4:
			name, w := strconv.Itoa(rng.IntN(1+rng.IntN(20))), 1+rng.IntN(100)
			if s.of(name) == 0 {
				served[name] = now
			}
			plain = append(plain, s.add(name, value{now, w}, w))
		case len(plain) == 0:
			if s.oldest() != nil || s.surplus() != nil || s.next() != nil || s.len() != 0 {
				t.Fatal("an empty list has something")
			}
		case op == 4:
			out = plain[rng.IntN(len(plain))]
			s.remove(out)
		case op == 5:
			out = s.oldest()
			if out != plain[0] {
				t.Fatalf("oldest is %+v", out.value)
			}
			s.remove(out)
		case op == 6:
			weights, oldest, most := map[string]int{}, map[string]*portion[value]{}, 0
			for _, p := range plain {
				if weights[p.owner.name] += p.value.weight; oldest[p.owner.name] == nil {
					oldest[p.owner.name] = p
				}
				most = max(most, weights[p.owner.name])
			}
			out = s.surplus()
			if o := out.owner; out != oldest[o.name] || weights[o.name] != most || o.weight != most {
				t.Fatalf("surplus is %+v of %+v, most weight %d", out.value, o, most)
			}
			s.remove(out)
		default:
			var first *portion[value]
			for _, p := range plain {
				if first == nil || served[p.owner.name] < served[first.owner.name] {
					first = p
				}
			}
			if out = s.next(); out != first {
				t.Fatalf("next is %+v of %s, want %+v of %s", out.value, out.owner.name, first.value, first.owner.name)
			}
			served[out.owner.name] = now
		}
		for i, p := range plain {
			if p == out {
				plain = append(plain[:i:i], plain[i+1:]...)
				break
			}
		}
		if s.len() != len(plain) {
			t.Fatalf("%d values, want %d", s.len(), len(plain))
		}
		if n := len(s.most) + s.turns.Len() - 2*len(s.owners); n != 0 {
			t.Fatalf("%d owners, %d in the heap, %d turns", len(s.owners), len(s.most), s.turns.Len())
		}
	}
}
