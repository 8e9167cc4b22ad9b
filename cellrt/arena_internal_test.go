package cellrt

import "testing"

func TestArena(t *testing.T) {
	t.Parallel()
	a := newArena(2)
	s0, g0, _ := a.acquire()
	s1, g1, _ := a.acquire()
	if s0 == s1 {
		t.Fatalf("slot %d handed out twice", s0)
	}
	if _, _, ok := a.acquire(); ok || a.available() != 0 {
		t.Fatal("a third slot of two")
	}
	a.release(s0, g0)
	mustPanic(t, "released twice", func() { a.release(s0, g0) })
	again, g2, ok := a.acquire()
	if !ok || again != s0 || g2 == g0 {
		t.Fatalf("acquired slot %d generation %d after releasing slot %d generation %d", again, g2, s0, g0)
	}
	mustPanic(t, "released by an earlier owner", func() { a.release(s0, g0) })
	a.release(again, g2)
	mustPanic(t, "released while free", func() { a.release(again, g2+1) })
	a.release(s1, g1)
	if a.available() != 2 || a.slots() != 2 {
		t.Fatalf("%d of %d slots free at the end", a.available(), a.slots())
	}
}

func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s: no panic", what)
		}
	}()
	f()
}
