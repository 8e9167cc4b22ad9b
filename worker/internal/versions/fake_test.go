package versions_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cellmq/cellmq/worker/internal/versions"
)

// linger is what the tests' sets have.
const linger = 30 * time.Second

// loader is a fake whose versions are sizes. It takes a second to load one, and
// checks what the package promises to loaders.
type loader struct {
	t      *testing.T
	budget int64

	mu       sync.Mutex
	sizes    map[string]int64         // by digest; others are 1
	shared   map[string]int64         // of the size, what all of a model share, the same for all of them
	fail     map[string]error         // by "step digest"
	hold     map[string]chan struct{} // by "step digest": the call lasts until it is closed
	calls    map[string]int           // by "step digest"
	deaf     bool                     // calls do not end with their context
	resident map[*versions.Loaded]string
	loading  string            // digest
	models   map[string]string // of digests
	running  map[string]bool
	fetching int
	opened   int
	failed   map[string]int // by digest
	order    []string       // digests as they were loaded, and with a "-" as they were unloaded

	refs sync.Map // *Loaded to *atomic.Int64: references as the test counts them
}

func newLoader(t *testing.T, budget int64) *loader {
	t.Helper()
	return &loader{
		t: t, budget: budget, sizes: map[string]int64{}, shared: map[string]int64{}, fail: map[string]error{},
		hold: map[string]chan struct{}{}, calls: map[string]int{}, resident: map[*versions.Loaded]string{},
		models: map[string]string{}, running: map[string]bool{}, failed: map[string]int{},
	}
}

func (f *loader) size(digest string) int64 {
	if n, ok := f.sizes[digest]; ok {
		return n
	}
	return 1
}

// begin counts a call, and returns its error after it lasted as long as it shall.
func (f *loader) begin(ctx context.Context, step string, k versions.Key, lasts time.Duration) error {
	f.mu.Lock()
	name := step + " " + k.Digest
	f.calls[name]++
	f.models[k.Digest] = k.Model
	if f.running[k.Digest] {
		f.t.Errorf("%s: another call of the same version runs", name)
	}
	f.running[k.Digest] = true
	hold, done := f.hold[name], ctx.Done()
	if f.deaf {
		done = nil
	}
	f.mu.Unlock()
	if hold == nil {
		timed := make(chan struct{})
		time.AfterFunc(lasts, func() { close(timed) })
		hold = timed
	}
	var err error
	select {
	case <-hold:
	case <-done:
		err = context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running[k.Digest] = false
	if f.fail[name] != nil {
		err = f.fail[name]
	}
	return err
}

func (f *loader) Fetch(ctx context.Context, k versions.Key) error {
	f.mu.Lock()
	if f.fetching++; f.fetching > 2 {
		f.t.Errorf("%d versions are fetched at once", f.fetching)
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.fetching--
		f.mu.Unlock()
	}()
	return f.begin(ctx, "fetch", k, time.Millisecond)
}

type opened struct {
	f      *loader
	key    versions.Key
	size   int64
	closed atomic.Bool
}

func (o *opened) Size() (weights, state int64) { return o.size - o.size/4, o.size / 4 }

func (o *opened) Close() {
	if o.closed.Swap(true) {
		o.f.t.Errorf("%s is closed twice", o.key.Digest)
	}
	o.f.mu.Lock()
	o.f.opened--
	o.f.mu.Unlock()
}

func (f *loader) Open(ctx context.Context, k versions.Key) (versions.Opened, error) {
	if err := f.begin(ctx, "open", k, time.Millisecond); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.opened++; f.opened > 1 {
		f.t.Errorf("%d versions are open at once", f.opened)
	}
	return &opened{f: f, key: k, size: f.size(k.Digest)}, nil
}

func (f *loader) Load(ctx context.Context, o versions.Opened, stage func(versions.State)) (*versions.Loaded, error) {
	v := o.(*opened)
	f.mu.Lock()
	if f.loading != "" {
		f.t.Errorf("%s and %s are loaded at once", f.loading, v.key.Digest)
	}
	f.loading = v.key.Digest
	f.models[v.key.Digest] = v.key.Model
	f.check(v)
	f.mu.Unlock()
	err := f.begin(ctx, "load", v.key, 900*time.Millisecond)
	if err == nil {
		stage(versions.Verifying)
		err = f.begin(ctx, "verify", v.key, 100*time.Millisecond)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loading = ""
	if err != nil {
		return nil, err
	}
	weights, state := v.Size()
	l := &versions.Loaded{Weights: weights, State: state, Took: time.Second}
	f.resident[l] = v.key.Digest
	f.refs.Store(l, new(atomic.Int64))
	f.order = append(f.order, v.key.Digest)
	return l, nil
}

// check looks at the bounds when a version is about to be loaded.
func (f *loader) check(v *opened) {
	var all []*versions.Loaded
	same := 1
	for l, digest := range f.resident {
		all = append(all, l)
		if f.models[digest] == v.key.Model {
			same++
		}
	}
	if same > 2 {
		f.t.Errorf("%s is loaded as version %d of %s", v.key.Digest, same, v.key.Model)
	}
	if got := f.footprint(all) + v.size; f.budget > 0 && got > f.budget {
		f.t.Errorf("%s is loaded with %d bytes in use or to come, of %d", v.key.Digest, got, f.budget)
	}
}

func (f *loader) Unload(l *versions.Loaded) error {
	f.mu.Lock()
	digest, ok := f.resident[l]
	k := versions.Key{Model: f.models[digest], Digest: digest}
	f.mu.Unlock()
	if !ok {
		f.t.Error("a version is unloaded that is not loaded")
	}
	if n, _ := f.refs.Load(l); n.(*atomic.Int64).Load() != 0 {
		f.t.Errorf("%s is unloaded with %d references", digest, n.(*atomic.Int64).Load())
	}
	if err := f.begin(context.Background(), "unload", k, 0); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.resident, l)
	f.order = append(f.order, "-"+digest)
	return nil
}

func (f *loader) Footprint(all []*versions.Loaded) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.footprint(all)
}

func (f *loader) footprint(all []*versions.Loaded) int64 {
	var sum int64
	seen := map[string]bool{}
	for _, l := range all {
		digest := f.resident[l]
		n := l.Weights + l.State
		if model := f.models[digest]; seen[model] {
			n -= f.shared[digest]
		} else {
			seen[model] = true
		}
		sum += n
	}
	return sum
}

// use counts a reference, and returns what stops counting it.
func (f *loader) use(l *versions.Loaded) func() {
	n, _ := f.refs.Load(l)
	n.(*atomic.Int64).Add(1)
	return func() { n.(*atomic.Int64).Add(-1) }
}

func (f *loader) loads() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprint(f.order)
}

func (f *loader) called(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[name]
}

func (f *loader) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// start runs a set until the test ends. It is called in a synctest bubble.
func start(t *testing.T, budget int64) (*versions.Set, *loader) {
	t.Helper()
	f := newLoader(t, budget)
	s := versions.New(versions.Config{Budget: budget, Linger: linger, Loader: f, Failed: func(k versions.Key, _ error) {
		f.set(func() { f.failed[k.Digest]++ })
	}})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if f.opened != 0 {
			t.Errorf("%d versions are still open", f.opened)
		}
	})
	return s, f
}

// key is a version of model m whose digest is its name.
func key(digest string) versions.Key { return versions.Key{Model: "m", Digest: digest} }

// of is a version of a model of the same name.
func of(model string) versions.Key { return versions.Key{Model: model, Digest: model} }

// pass lets so much time go by, and what is due then happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// state returns a version's state, and its reason if it has one.
func state(s *versions.Set, k versions.Key) (versions.State, string) {
	for _, st := range s.Status() {
		if st.Key == k {
			return st.State, st.Reason
		}
	}
	return versions.Absent, ""
}

func wantState(t *testing.T, s *versions.Set, k versions.Key, want versions.State) {
	t.Helper()
	if got, reason := state(s, k); got != want {
		t.Errorf("%s is %s (%s), want %s", k.Digest, got, reason, want)
	}
}

// acquire refers to a version that has to be in memory, and returns what gives
// the reference back.
func acquire(t *testing.T, s *versions.Set, f *loader, k versions.Key) func() {
	t.Helper()
	l, ok := s.Acquire(k)
	if !ok {
		st, reason := state(s, k)
		t.Fatalf("%s can not be referred to, it is %s (%s)", k.Digest, st, reason)
	}
	return releaser(s, f, k, l)
}

func releaser(s *versions.Set, f *loader, k versions.Key, l *versions.Loaded) func() {
	unuse := f.use(l)
	return func() {
		unuse()
		s.Release(k)
	}
}

// await is acquire for one that may have to be loaded.
func await(t *testing.T, s *versions.Set, f *loader, k versions.Key) func() {
	t.Helper()
	l, err := s.Await(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	return releaser(s, f, k, l)
}
