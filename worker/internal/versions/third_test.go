package versions_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cellmq/cellmq/worker/internal/versions"
)

func TestTwoAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 0)
		// The loader checks that there are never three.
		digests := []string{"a", "b", "c", "d", "e"}
		for i := range digests[1:] {
			s.Want("m", []versions.Key{key(digests[i]), key(digests[i+1])}, true)
			pass(time.Minute)
			wantState(t, s, key(digests[i]), versions.Warm)
			wantState(t, s, key(digests[i+1]), versions.Warm)
			for _, other := range digests[i+2:] {
				if _, err := s.Await(t.Context(), key(other)); !errors.Is(err, versions.ErrThird) {
					t.Errorf("await: %v, want ErrThird", err)
				}
			}
		}
		await(t, s, f, of("another"))() // is another model
	})
}

// TestThirdWaits: a third version comes in when one that is not wanted is not
// used any more, and that one takes no new requests meanwhile.
func TestThirdWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 0)
		s.Want("m", []versions.Key{key("a"), key("b")}, true)
		pass(time.Minute)
		release := acquire(t, s, f, key("a"))
		acquire(t, s, f, key("b"))()
		s.Want("m", []versions.Key{key("b"), key("c")}, true)
		pass(time.Hour)
		if st, reason := state(s, key("c")); st != versions.Cold || reason != "two versions are live" {
			t.Errorf("c is %s (%s), want cold (two versions are live)", st, reason)
		}
		if _, ok := s.Acquire(key("a")); ok {
			t.Error("a version that a third one waits for can be referred to")
		}
		if _, err := s.Await(t.Context(), key("a")); !errors.Is(err, versions.ErrThird) {
			t.Errorf("await: %v, want ErrThird", err)
		}
		acquire(t, s, f, key("b"))()
		await(t, s, f, of("another"))() // does not wait behind it
		release()
		pass(2 * time.Second)
		wantState(t, s, key("a"), versions.Absent)
		wantState(t, s, key("c"), versions.Warm)
	})
}

// TestThirdGivesUp: when the third one is not wanted any more, the other one
// takes requests as before.
func TestThirdGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 0)
		s.Want("m", []versions.Key{key("a"), key("b")}, true)
		pass(time.Minute)
		release := acquire(t, s, f, key("a"))
		s.Want("m", []versions.Key{key("b"), key("c")}, true)
		pass(time.Second)
		s.Want("m", []versions.Key{key("b")}, true)
		synctest.Wait()
		acquire(t, s, f, key("a"))()
		release()
		wantState(t, s, key("a"), versions.Draining)
	})
}

func TestLingerEndsForThird(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 0)
		s.Want("m", []versions.Key{key("a"), key("b")}, true)
		pass(time.Minute)
		acquire(t, s, f, key("a"))()
		s.Want("m", []versions.Key{key("b")}, true)
		pass(time.Second)
		s.Want("m", []versions.Key{key("b"), key("c")}, true)
		pass(2 * time.Second)
		if got := f.loads(); got != "[a b -a c]" {
			t.Errorf("loaded and unloaded %s, want [a b -a c]", got)
		}
	})
}

// TestTwoUnwanted: versions that are only asked for take turns in the second
// place.
func TestTwoUnwanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 0)
		s.Want("m", []versions.Key{key("a")}, false)
		pass(time.Minute)
		release := await(t, s, f, key("b"))
		got := make(chan error, 1)
		go func() {
			_, err := s.Await(t.Context(), key("c"))
			got <- err
		}()
		pass(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := s.Await(ctx, key("b")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("await: %v, want the deadline: c is before it", err)
		}
		release()
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		s.Want("m", []versions.Key{key("a"), key("d")}, true)
		pass(time.Minute)
		wantState(t, s, key("c"), versions.Draining)
		wantState(t, s, key("d"), versions.Cold)
		s.Release(key("c"))
		pass(2 * time.Second)
		wantState(t, s, key("d"), versions.Warm)
	})
}

// TestThirdIsNotAwaited: those that wait for a version which becomes a third are
// told so.
func TestThirdIsNotAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 0)
		f.set(func() { f.hold["fetch c"] = make(chan struct{}) })
		s.Want("m", []versions.Key{key("a")}, false)
		got := make(chan error, 1)
		go func() {
			_, err := s.Await(t.Context(), key("c"))
			got <- err
		}()
		pass(time.Minute)
		s.Want("m", []versions.Key{key("a"), key("b")}, true)
		if err := <-got; !errors.Is(err, versions.ErrThird) {
			t.Errorf("await: %v, want ErrThird", err)
		}
		pass(time.Minute)
		wantState(t, s, key("c"), versions.Absent)
	})
}
