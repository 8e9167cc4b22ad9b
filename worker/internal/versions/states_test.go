package versions_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cellmq/cellmq/worker/internal/versions"
)

// TestWayIn walks a version through all states, each left by what the package
// says leaves it.
func TestWayIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 0)
		steps := []struct {
			call string
			then versions.State
		}{{"fetch a", versions.Fetching}, {"open a", versions.Loading}, {"load a", versions.Loading}, {"verify a", versions.Verifying}}
		for _, step := range steps {
			f.set(func() { f.hold[step.call] = make(chan struct{}) })
		}
		wantState(t, s, key("a"), versions.Absent)
		s.Want("m", []versions.Key{key("a")}, false)
		for _, step := range steps {
			pass(time.Minute)
			wantState(t, s, key("a"), step.then)
			if _, ok := s.Acquire(key("a")); ok {
				t.Errorf("a version that is %s can be referred to", step.then)
			}
			close(f.hold[step.call])
		}
		pass(time.Second)
		wantState(t, s, key("a"), versions.Warm)
		release := acquire(t, s, f, key("a"))
		wantState(t, s, key("a"), versions.Live)
		if st := s.Status()[0]; !st.State.Resident() || st.References != 1 || st.WeightBytes+st.StateBytes != 1 || st.Took != time.Second || !st.Wanted {
			t.Errorf("status %+v, want that of a loaded version", st)
		}
		s.Want("m", nil, false)
		wantState(t, s, key("a"), versions.Draining)
		pass(time.Hour)
		wantState(t, s, key("a"), versions.Draining)
		release()
		pass(linger)
		wantState(t, s, key("a"), versions.Absent)
		if got := len(s.Status()); got != 0 {
			t.Errorf("%d versions are known, want none", got)
		}
	})
}

func TestLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 0)
		s.Want("m", []versions.Key{key("a")}, false)
		await(t, s, f, key("a"))()
		pass(time.Hour)
		s.Want("m", []versions.Key{key("b")}, false)
		pass(linger - time.Second)
		wantState(t, s, key("a"), versions.Draining)
		acquire(t, s, f, key("a"))() // a retry of a request that it began
		pass(linger - time.Second)
		wantState(t, s, key("a"), versions.Draining)
		pass(time.Second)
		wantState(t, s, key("a"), versions.Absent)
		wantState(t, s, key("b"), versions.Warm)
	})
}

func TestWantedAgainWhileDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 0)
		s.Want("m", []versions.Key{key("a")}, false)
		await(t, s, f, key("a"))()
		s.Want("m", nil, false)
		pass(linger / 2)
		s.Want("m", []versions.Key{key("a")}, false)
		pass(time.Hour)
		wantState(t, s, key("a"), versions.Live)
		if got := f.loads(); got != "[a]" {
			t.Errorf("loaded and unloaded %s, want [a]", got)
		}
	})
}

// TestUnwantedOnItsWay: whatever a version is doing, it stops when nobody needs
// it, and begins anew when somebody does.
func TestUnwantedOnItsWay(t *testing.T) {
	for _, call := range []string{"fetch a", "open a", "load a", "verify a"} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, f := start(t, 0)
				f.set(func() { f.hold[call] = make(chan struct{}) })
				s.Want("m", []versions.Key{key("a")}, false)
				pass(time.Minute)
				s.Want("m", nil, false)
				synctest.Wait()
				wantState(t, s, key("a"), versions.Absent)
				if got := len(s.Status()); got != 0 {
					t.Errorf("%d versions are known, want none", got)
				}
				f.set(func() { delete(f.hold, call) })
				s.Want("m", []versions.Key{key("a")}, false)
				pass(5 * time.Second)
				wantState(t, s, key("a"), versions.Warm)
			})
		})
	}
}

// TestFetchIsRepeated: a fetch is tried again after 1 s to 30 s, and those that
// wait go on waiting.
func TestFetchIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 0)
		f.set(func() { f.fail["fetch a"] = errors.New("no connection") })
		s.Want("m", []versions.Key{key("a")}, false)
		pass(time.Minute) // after 0, 1, 3, 7, 15, 31 s
		if got := f.called("fetch a"); got != 6 {
			t.Errorf("fetched %d times in a minute, want 6", got)
		}
		pass(5 * time.Minute)
		if got := f.called("fetch a"); got != 16 {
			t.Errorf("fetched %d times in six minutes, want 16", got)
		}
		if st, reason := state(s, key("a")); st != versions.Fetching || reason != "no connection" {
			t.Errorf("it is %s (%s), want fetching (no connection)", st, reason)
		}
		f.set(func() { delete(f.fail, "fetch a") })
		await(t, s, f, key("a"))()
		if _, reason := state(s, key("a")); reason != "" {
			t.Errorf("the reason %q is left", reason)
		}
	})
}

// fatal lists what ends an attempt to load, by the call that says so.
func fatal() map[string]error {
	return map[string]error{
		"fetch": fmt.Errorf("fetch: %w: digest", versions.ErrRefused), "open": errors.New("no tensor w"),
		"load": errors.New("no kernel"), "verify": errors.New("golden 3 differs"),
	}
}

func TestFailedIsKeptUntilWantChanges(t *testing.T) {
	for step, reason := range fatal() {
		t.Run(step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, f := start(t, 0)
				f.set(func() { f.fail[step+" b"] = reason })
				s.Want("m", []versions.Key{key("a"), key("b")}, true)
				pass(5 * time.Second)
				for range 3 { // level-triggered
					s.Want("m", []versions.Key{key("a"), key("b")}, true)
					pass(time.Hour)
				}
				wantState(t, s, key("a"), versions.Warm)
				if st, why := state(s, key("b")); st != versions.Failed || why != reason.Error() {
					t.Errorf("it is %s (%s), want failed (%v)", st, why, reason)
				}
				if _, err := s.Await(t.Context(), key("b")); !errors.Is(err, reason) {
					t.Errorf("await: %v, want %v", err, reason)
				}
				if got := f.called(step + " b"); got != 1 {
					t.Errorf("tried %d times, want once", got)
				}
				f.set(func() { f.fail = map[string]error{} })
				s.Want("m", []versions.Key{key("a")}, true)
				s.Want("m", []versions.Key{key("a"), key("b")}, true)
				pass(5 * time.Second)
				wantState(t, s, key("b"), versions.Warm)
			})
		})
	}
}

func TestFailedActiveIsTriedAgain(t *testing.T) {
	for step, reason := range fatal() {
		t.Run(step, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, f := start(t, 0)
				f.set(func() { f.fail[step+" a"] = reason })
				s.Want("m", []versions.Key{key("a")}, false)
				pass(3 * time.Second)
				wantState(t, s, key("a"), versions.Failed)
				pass(time.Hour)
				// 6 pauses double until 160 s, and 5 min fit 10 or 11 times into the rest
				if got := f.called(step + " a"); got < 16 || got > 18 {
					t.Errorf("tried %d times in an hour, want 17 or so", got)
				}
				f.set(func() { f.fail = map[string]error{} })
				pass(5*time.Minute + 5*time.Second)
				wantState(t, s, key("a"), versions.Warm)
			})
		})
	}
}

// TestWantedAnewIsTriedAtOnce: what becomes wanted, or the active version, does
// not rest for an earlier failure.
func TestWantedAnewIsTriedAtOnce(t *testing.T) {
	for name, before := range map[string][]versions.Key{"only asked for": {key("a")}, "the other one": {key("a"), key("b")}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, f := start(t, 0)
				f.set(func() { f.fail["open b"] = errors.New("no tensor") })
				s.Want("m", before, false)
				if _, err := s.Await(t.Context(), key("b")); err == nil {
					t.Error("no error of one that fails")
				}
				wantState(t, s, key("b"), versions.Failed)
				f.set(func() { f.fail = map[string]error{} })
				s.Want("m", []versions.Key{key("b"), key("a")}, false)
				pass(3 * time.Second)
				wantState(t, s, key("b"), versions.Warm)
			})
		})
	}
}

// TestFailedOnDemand: a version that is not wanted and cannot be loaded is not
// tried for each of those that ask for it.
func TestFailedOnDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 0)
		f.set(func() { f.fail["fetch a"] = versions.ErrUnknown })
		for range 3 {
			if _, err := s.Await(t.Context(), key("a")); !errors.Is(err, versions.ErrUnknown) {
				t.Errorf("await: %v, want ErrUnknown", err)
			}
		}
		if got := f.called("fetch a"); got != 1 {
			t.Errorf("tried %d times, want once", got)
		}
		pass(5 * time.Second)
		if got := len(s.Status()); got != 0 {
			t.Errorf("%d versions are known, want none", got)
		}
		f.set(func() { f.fail = map[string]error{} })
		await(t, s, f, key("a"))()
	})
}

func TestAwaitLoadsWhatIsNotWanted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 0)
		s.Want("m", []versions.Key{key("a")}, false)
		release := await(t, s, f, key("b"))
		wantState(t, s, key("b"), versions.Draining)
		pass(time.Hour)
		release()
		pass(linger)
		wantState(t, s, key("b"), versions.Absent)
		if _, err := s.Await(t.Context(), versions.Key{Model: "m"}); !errors.Is(err, versions.ErrUnknown) {
			t.Errorf("await without a digest: %v, want ErrUnknown", err)
		}
	})
}

// TestCancelAwait: a wait ends with its context, in every state, and leaves
// nothing behind; others that wait go on.
func TestCancelAwait(t *testing.T) {
	for _, call := range []string{"fetch a", "open a", "load a", "verify a"} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, f := start(t, 0)
				hold := make(chan struct{})
				f.set(func() { f.hold[call] = hold })
				stays := make(chan error, 1)
				go func() {
					_, err := s.Await(t.Context(), key("a"))
					stays <- err
				}()
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("too long"))
				defer cancel()
				_, err := s.Await(ctx, key("a"))
				if err == nil || !errors.Is(err, context.Cause(ctx)) || !strings.Contains(err.Error(), "version a of m") {
					t.Errorf("await: %v, want the cause, and the version", err)
				}
				close(hold)
				if err := <-stays; err != nil {
					t.Error(err)
				}
				s.Release(key("a"))
				if st := s.Status(); len(st) != 1 || st[0].References != 0 || st[0].Waiting != 0 {
					t.Errorf("status %+v, want one without references", st)
				}
			})
		})
	}
	t.Run("alone", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, f := start(t, 0)
			f.set(func() { f.hold["load a"] = make(chan struct{}) })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := s.Await(ctx, key("a")); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("await: %v, want the deadline", err)
			}
			synctest.Wait()
			if got := len(s.Status()); got != 0 {
				t.Errorf("%d versions are known, want none", got)
			}
		})
	})
}

// TestStop: when Run ends, waits end, calls of the loader end, and what is in
// memory stays usable.
func TestStop(t *testing.T) {
	for _, call := range []string{"fetch b", "open b", "load b", "verify b"} {
		t.Run(call, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newLoader(t, 0)
				f.hold[call] = make(chan struct{})
				s := versions.New(versions.Config{Linger: linger, Loader: f})
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- s.Run(ctx) }()
				s.Want("m", []versions.Key{key("a")}, false)
				await(t, s, f, key("a"))()
				waits := make(chan error, 1)
				go func() {
					_, err := s.Await(t.Context(), key("b"))
					waits <- err
				}()
				pass(time.Minute)
				stop()
				if err := <-waits; !errors.Is(err, versions.ErrStopped) {
					t.Errorf("await: %v, want ErrStopped", err)
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
				acquire(t, s, f, key("a"))()
				if _, err := s.Await(t.Context(), key("b")); !errors.Is(err, versions.ErrStopped) {
					t.Errorf("await: %v, want ErrStopped", err)
				}
				if f.opened != 0 {
					t.Error("files are open")
				}
			})
		})
	}
}

// TestStopBetweenOpenAndLoad: files that are opened while the set stops are
// closed, and not loaded.
func TestStopBetweenOpenAndLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newLoader(t, 0)
		hold := make(chan struct{})
		f.deaf, f.hold["open a"] = true, hold
		s := versions.New(versions.Config{Linger: linger, Loader: f})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		s.Want("m", []versions.Key{key("a")}, false)
		pass(time.Minute)
		stop()
		pass(time.Minute)
		select {
		case <-ended:
			t.Fatal("Run ended before the loader did")
		default:
		}
		close(hold)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if f.opened != 0 || f.called("open a") != 1 || f.called("load a") != 0 {
			t.Errorf("%d versions are open after %v", f.opened, f.calls)
		}
	})
}

// TestUnloadIsRepeated: a version that cannot be unloaded stays, and is tried
// again.
func TestUnloadIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, f := start(t, 0)
		f.set(func() { f.fail["unload a"] = errors.New("busy") })
		s.Want("m", []versions.Key{key("a")}, false)
		await(t, s, f, key("a"))()
		s.Want("m", nil, false)
		pass(linger + 10*time.Second)
		if st, reason := state(s, key("a")); st != versions.Draining || reason != "busy" {
			t.Errorf("it is %s (%s), want draining (busy)", st, reason)
		}
		if got := f.called("unload a"); got < 10 || got > 11 {
			t.Errorf("unloaded %d times in 10 s, want 10 or 11", got)
		}
		f.set(func() { f.fail = map[string]error{} })
		pass(2 * time.Second)
		wantState(t, s, key("a"), versions.Absent)
	})
}

// TestChanged: whoever looks at the status when told sees every state.
func TestChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newLoader(t, 0)
		var s *versions.Set
		var seen []versions.State
		s = versions.New(versions.Config{Linger: linger, Loader: f, Changed: func() {
			if st, _ := state(s, key("a")); len(seen) == 0 || seen[len(seen)-1] != st {
				seen = append(seen, st)
			}
		}})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		s.Want("m", []versions.Key{key("a")}, false)
		pass(time.Minute)
		acquire(t, s, f, key("a"))()
		synctest.Wait()
		s.Want("m", nil, false)
		pass(time.Minute)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		want := []versions.State{
			versions.Fetching, versions.Loading, versions.Verifying, versions.Warm, versions.Live, versions.Draining, versions.Absent,
		}
		if got := slices.DeleteFunc(seen, func(st versions.State) bool { return st == versions.Cold }); !slices.Equal(got, want) {
			t.Errorf("told of %v, want %v", got, want)
		}
	})
}

// TestMisuse: what a program must not do panics.
func TestMisuse(t *testing.T) {
	s := versions.New(versions.Config{Loader: newLoader(t, 0)})
	for name, call := range map[string]func(){
		"three":             func() { s.Want("m", []versions.Key{key("a"), key("b"), key("c")}, false) },
		"another's version": func() { s.Want("m", []versions.Key{of("n")}, false) },
		"no digest":         func() { s.Want("m", []versions.Key{{Model: "m"}}, false) },
		"release":           func() { s.Release(key("a")) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if p, _ := recover().(string); !strings.HasPrefix(p, "versions: ") {
					t.Errorf("panic %q, want one of this package", p)
				}
			}()
			call()
		})
	}
}
