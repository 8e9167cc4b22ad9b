package versions_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cellmq/cellmq/worker/internal/versions"
)

// wantEach has a version of each model wanted that is named as the model.
func wantEach(s *versions.Set, pinned bool, names ...string) {
	for _, name := range names {
		s.Want(name, []versions.Key{of(name)}, pinned)
	}
}

// TestWantedPushesNobodyOut: what is only wanted takes the room there is.
func TestWantedPushesNobodyOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 3)
		wantEach(s, false, "a", "b", "c", "d", "e")
		pass(time.Hour)
		if got := f.loads(); got != "[a b c]" {
			t.Errorf("loaded %s, want [a b c]", got)
		}
		if st, reason := state(s, of("d")); st != versions.Cold || !strings.Contains(reason, "3 of 3") {
			t.Errorf("d is %s (%s), want cold, with the figures", st, reason)
		}
		if got := s.Totals(); got != (versions.Totals{Bytes: 3, Budget: 3}) {
			t.Errorf("totals %+v, want 3 of 3 bytes", got)
		}
		s.Want("b", nil, false)
		pass(2 * linger)
		wantState(t, s, of("d"), versions.Warm)
	})
}

// TestLRU: the one that was given back first goes first.
func TestLRU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 3)
		wantEach(s, false, "a", "b", "c", "d", "e", "f")
		pass(time.Minute)
		releases := map[string]func(){}
		for _, name := range []string{"b", "c", "a"} {
			releases[name] = acquire(t, s, f, of(name))
		}
		for _, name := range []string{"c", "a", "b"} {
			pass(time.Second)
			releases[name]()
		}
		for _, name := range []string{"d", "e", "f"} {
			await(t, s, f, of(name))()
		}
		if got := f.loads(); got != "[a b c -c d -a e -b f]" {
			t.Errorf("loaded and unloaded %s, want [a b c -c d -a e -b f]", got)
		}
		wantState(t, s, of("c"), versions.Cold)
		if got := s.Totals().Evictions; got != 3 {
			t.Errorf("%d evictions, want 3", got)
		}
		await(t, s, f, of("c"))()
		if got := f.called("fetch c"); got != 2 {
			t.Errorf("c was fetched %d times, want twice: its files may have gone meanwhile", got)
		}
	})
}

// TestNoneTooMany: of the least recently used those stay whose going would not
// help.
func TestNoneTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 10)
		f.set(func() { f.sizes["b"], f.sizes["d"] = 8, 9 })
		wantEach(s, false, "a", "b")
		for _, name := range []string{"a", "b"} {
			await(t, s, f, of(name))()
			pass(time.Second)
		}
		await(t, s, f, of("d"))()
		if got := f.loads(); got != "[a b -b d]" {
			t.Errorf("loaded and unloaded %s, want [a b -b d]", got)
		}
	})
}

// TestDrainingGoesFirst: the budget ends a linger before it pushes anybody out.
func TestDrainingGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 2)
		wantEach(s, false, "a", "b")
		for _, name := range []string{"a", "b"} {
			await(t, s, f, of(name))()
			pass(time.Second)
		}
		s.Want("b", nil, false)
		wantEach(s, false, "c") // which is enough, as b is not wanted
		await(t, s, f, of("c"))()
		s.Want("c", nil, false)
		await(t, s, f, of("d"))() // a is the least recently used one, but c is not wanted
		if got := f.loads(); got != "[a b -b c -c d]" {
			t.Errorf("loaded and unloaded %s, want [a b -b c -c d]", got)
		}
	})
}

func TestPinnedStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 2)
		wantEach(s, false, "a", "b")
		pass(time.Minute)
		wantEach(s, true, "a")
		await(t, s, f, of("b"))()
		await(t, s, f, of("c"))()
		await(t, s, f, of("b"))()
		if got := f.loads(); got != "[a b -b c -c b]" {
			t.Errorf("loaded and unloaded %s, want [a b -b c -c b]", got)
		}
		wantEach(s, true, "b")
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := s.Await(ctx, of("c")); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no room") {
			t.Errorf("await: %v, want the deadline, and the reason", err)
		}
		wantEach(s, false, "a")
		await(t, s, f, of("c"))()
	})
}

// TestPinnedComesIn: what is pinned pushes others out, once nobody uses them.
func TestPinnedComesIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 2)
		wantEach(s, false, "a", "b")
		pass(time.Minute)
		releases := []func(){acquire(t, s, f, of("a")), acquire(t, s, f, of("b"))}
		s.Want("m", []versions.Key{key("c")}, true)
		pass(time.Minute)
		wantState(t, s, key("c"), versions.Cold)
		releases[0]()
		pass(2 * time.Second)
		wantState(t, s, key("c"), versions.Warm)
		releases[1]()
	})
}

// TestBudgetTooSmall: what can never fit fails at once, with both figures.
func TestBudgetTooSmall(t *testing.T) {
	for name, test := range map[string]struct {
		keys []versions.Key
		want versions.BudgetError
	}{
		"alone":           {[]versions.Key{key("b")}, versions.BudgetError{Need: 7, Budget: 6}},
		"beside a pinned": {[]versions.Key{key("c"), key("d")}, versions.BudgetError{Need: 8, Budget: 6}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, f := start(t, 6)
				f.set(func() { f.sizes["b"], f.sizes["c"], f.sizes["d"] = 7, 4, 4 })
				await(t, s, f, of("a"))()
				s.Want("m", test.keys, true)
				last := test.keys[len(test.keys)-1]
				_, err := s.Await(t.Context(), last)
				var small *versions.BudgetError
				if !errors.Is(err, versions.ErrBudget) || !errors.As(err, &small) || *small != test.want {
					t.Errorf("await: %v, want %v", err, &test.want)
				}
				wantState(t, s, last, versions.Failed)
				f.set(func() {
					if f.failed[last.Digest] == 0 {
						t.Error("nobody was told")
					}
				})
				await(t, s, f, of("a"))()
			})
		})
	}
}

// TestSharedBytesCountOnce: versions that share have room where others would not.
func TestSharedBytesCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 10)
		f.set(func() {
			f.sizes["a"], f.sizes["b"], f.shared["a"], f.shared["b"] = 5, 5, 4, 4
			f.sizes["c"] = 4
		})
		s.Want("m", []versions.Key{key("a"), key("b")}, false)
		pass(time.Minute)
		await(t, s, f, of("c"))()
		if got := f.loads(); got != "[a b c]" {
			t.Errorf("loaded and unloaded %s, want [a b c]", got)
		}
	})
}

// TestBusyMakesRoom: versions that are never idle give way to one that is asked
// for, the oldest first, and come back in their turn.
func TestBusyMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 2)
		wantEach(s, false, "a", "b", "c")
		pass(time.Minute)
		ctx, stop := context.WithCancel(t.Context())
		var clients sync.WaitGroup
		for _, name := range []string{"a", "b"} {
			clients.Go(func() {
				for ctx.Err() == nil {
					l, err := s.Await(ctx, of(name))
					if err != nil {
						return
					}
					release := releaser(s, f, of(name), l)
					time.Sleep(500 * time.Millisecond)
					time.AfterFunc(400*time.Millisecond, release) // the next one has its reference before
				}
			})
		}
		pass(10 * time.Second)
		for range 20 {
			asked := time.Now()
			release := await(t, s, f, of("c"))
			// 900 ms until the references are back, 1 s to load; the same before for one that asked earlier
			if took := time.Since(asked); took > 4*time.Second {
				t.Errorf("waited %v, want at most 4 s", took)
			}
			release()
			pass(3 * time.Second)
		}
		stop()
		clients.Wait()
		pass(time.Second) // the last references are given back
	})
}

// TestTenThroughThree: ten models with room for three answer all requests, each
// after at most a load of each of the models.
func TestTenThroughThree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 3)
		const models, clients, each = 10, 20, 500
		var names []string
		for i := range models {
			names = append(names, fmt.Sprint("model", i))
		}
		wantEach(s, false, names...)
		waited := make(chan time.Duration, clients)
		for c := range clients {
			go func() {
				var longest time.Duration
				for i := range each {
					k := of(names[(c*7+i*i+i/3)%models])
					asked := time.Now()
					l, err := s.Await(t.Context(), k)
					if err != nil {
						t.Error(err)
						break
					}
					longest = max(longest, time.Since(asked))
					release := releaser(s, f, k, l)
					time.Sleep(time.Duration(i%5) * 20 * time.Millisecond)
					release()
				}
				waited <- longest
			}()
		}
		var longest time.Duration
		for range clients {
			longest = max(longest, <-waited)
		}
		const bound = (models + 1) * (time.Second + 100*time.Millisecond)
		if longest > bound {
			t.Errorf("waited %v, want at most %v", longest, bound)
		}
		t.Logf("waited at most %v; %d evictions", longest, s.Totals().Evictions)
		pass(linger)
		if got := s.Totals().Bytes; got != 3 {
			t.Errorf("%d bytes in memory, want 3", got)
		}
	})
}

// TestColdComesBackWhenQuiet: a version that was pushed out does not push back,
// but comes back when there is room and nobody has been pushed out for a while.
func TestColdComesBackWhenQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 2)
		wantEach(s, false, "a", "b")
		pass(time.Minute)
		await(t, s, f, of("c"))() // a goes; c is not wanted, and drains
		pass(linger - 10*time.Second)
		wantState(t, s, of("a"), versions.Cold)
		pass(12 * time.Second)
		wantState(t, s, of("a"), versions.Warm)
		if got := f.loads(); got != "[a b -a c -c a]" {
			t.Errorf("loaded and unloaded %s, want [a b -a c -c a]", got)
		}
	})
}

// TestFirstInLineIsLoaded: files that are open are closed for a version that
// comes before, and both are loaded.
func TestFirstInLineIsLoaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 0)
		fetch, open := make(chan struct{}), make(chan struct{})
		f.set(func() { f.hold["fetch a"], f.hold["open b"] = fetch, open })
		s.Want("m", []versions.Key{key("a"), key("b")}, true)
		pass(time.Second)
		close(fetch)
		synctest.Wait()
		close(open)
		pass(5 * time.Second)
		if got := f.loads(); got != "[a b]" {
			t.Errorf("loaded %s, want [a b]", got)
		}
	})
}

// TestWaitingHoldsTheLine: one that waits for references keeps its turn before
// those that would fit.
func TestWaitingHoldsTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 4)
		f.set(func() { f.sizes["a"], f.sizes["b"] = 2, 4 })
		release := await(t, s, f, of("a"))
		var all sync.WaitGroup
		for _, name := range []string{"b", "c"} {
			all.Go(func() {
				l, err := s.Await(t.Context(), of(name))
				if err != nil {
					t.Error(err)
					return
				}
				releaser(s, f, of(name), l)()
			})
			pass(time.Minute)
		}
		release()
		all.Wait()
		if got := f.loads(); got != "[a -a b -b c]" {
			t.Errorf("loaded and unloaded %s, want [a -a b -b c]", got)
		}
	})
}
