package cellrt

import (
	"math/rand/v2"
	"testing"
)

// TestBalancesAddUp runs tenants through random turns and checks that what
// they have and what is to be granted is nothing in sum.
func TestBalancesAddUp(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(8, 8))
	s := fairShare{bound: 500}
	tenants := make([]tenant, 7)
	for turn := range 20_000 {
		for range r.IntN(20) {
			s.waits(&tenants[r.IntN(len(tenants))])
		}
		for range r.IntN(20) {
			if who := &tenants[r.IntN(len(tenants))]; who.waiting > 0 {
				s.charge(who, 1+r.Int64N(90))
				s.goes(who)
			}
		}
		s.grant(nil)
		sum := s.paid
		for i := range tenants {
			who := &tenants[i]
			sum += who.balance
			if who.waiting > 0 {
				sum += s.granted - who.seen
			} else if who.balance > 0 {
				t.Fatalf("turn %d: a tenant without nodes has %d", turn, who.balance)
			}
		}
		if sum != 0 {
			t.Fatalf("turn %d: the balances add up to %d", turn, sum)
		}
		for i := range tenants {
			if who := &tenants[i]; who.waiting > 0 {
				if c := s.credit(who); c > s.bound || c < -s.bound {
					t.Fatalf("turn %d: balance %d", turn, c)
				}
			}
		}
	}
}
