package versions_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cellmq/cellmq/worker/internal/versions"
)

// TestNeverWithReferences: whatever is wanted, asked for and given back at
// random, with calls that fail at random, the loader finds its promises kept,
// and at the end everything that is wanted can be had.
func TestNeverWithReferences(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			budget := int64(seed%4) * 8 // none at times
			synctest.Test(t, func(t *testing.T) {
				s, f := start(t, budget)
				churn(t, s, f, seed)
				f.set(func() { f.fail = map[string]error{} })
				for m := range 4 {
					model := fmt.Sprint("m", m)
					s.Want(model, nil, false)
					s.Want(model, []versions.Key{random(m, 0)}, false)
				}
				pass(10 * time.Minute)
				for m := range 4 {
					await(t, s, f, random(m, 0))()
				}
				for _, st := range s.Status() {
					if st.References != 0 || st.Waiting != 0 {
						t.Errorf("%+v is left with references", st)
					}
					s.Want(st.Model, nil, false)
				}
				pass(2 * linger)
				if got := s.Status(); len(got) != 0 || len(f.resident) != 0 {
					t.Errorf("%d versions are left, and %d in memory", len(got), len(f.resident))
				}
			})
		})
	}
}

func random(model, version int) versions.Key {
	return versions.Key{Model: fmt.Sprint("m", model), Digest: fmt.Sprintf("m%d.%d", model, version)}
}

// churn lets eight clients use four models of four versions each while somebody
// changes what is wanted and what fails.
func churn(t *testing.T, s *versions.Set, f *loader, seed uint64) {
	t.Helper()
	f.set(func() {
		for i := range 16 {
			k := random(i/4, i%4)
			f.sizes[k.Digest], f.shared[k.Digest] = int64(2+i%3), int64(i/4%2)
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	for c := range 8 {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(c)))
			for range 300 {
				use(ctx, t, s, f, r)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r := rand.New(rand.NewPCG(seed, 100))
		for ctx.Err() == nil {
			first := r.IntN(4)
			keys := []versions.Key{random(first, r.IntN(4)), random(first, r.IntN(4))}
			if keys[0] == keys[1] {
				keys = keys[:r.IntN(2)]
			}
			s.Want(fmt.Sprint("m", first), keys, r.IntN(4) == 0)
			step := []string{"fetch", "open", "load", "verify", "unload"}[r.IntN(5)]
			f.set(func() {
				f.fail[step+" "+random(r.IntN(4), r.IntN(4)).Digest] = []error{nil, nil, errors.New("at random"), versions.ErrRefused}[r.IntN(4)]
			})
			time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
		}
	}()
	all.Wait()
	stop()
	<-done
}

// use asks for a version at random, and gives it back.
func use(ctx context.Context, t *testing.T, s *versions.Set, f *loader, r *rand.Rand) {
	t.Helper()
	k := random(r.IntN(4), r.IntN(4))
	l, ok := s.Acquire(k)
	if !ok && r.IntN(2) == 0 {
		asking, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(8000))*time.Millisecond)
		defer cancel()
		var err error
		l, err = s.Await(asking, k)
		ok = err == nil
	}
	time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
	if !ok {
		return
	}
	f.mu.Lock()
	if f.resident[l] != k.Digest {
		t.Errorf("a reference to %s is to %q", k.Digest, f.resident[l])
	}
	f.mu.Unlock()
	release := releaser(s, f, k, l)
	time.Sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
	release()
}

func TestAcquireDoesNotAllocate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 10)
		s.Want("m", []versions.Key{key("a")}, false)
		await(t, s, f, key("a"))()
		if n := testing.AllocsPerRun(1000, func() {
			if _, ok := s.Acquire(key("a")); ok {
				s.Release(key("a"))
			}
		}); n != 0 {
			t.Errorf("%v allocations, want none", n)
		}
	})
}
