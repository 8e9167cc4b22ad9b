package registry_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cellmq/cellmq/registry"
)

// fill stores records of n keys, as fast as the server takes them.
func (b *bench) fill(tb testing.TB, n int, subject func(i int) string, data func(i int) []byte) {
	tb.Helper()
	for i := range n {
		if _, err := b.js.PublishAsync(subject(i), data(i), jetstream.WithRetryAttempts(0)); err != nil {
			tb.Fatal(err)
		}
		if i%1000 == 999 || i == n-1 {
			select {
			case <-b.js.PublishAsyncComplete():
			case <-time.After(30 * time.Second):
				tb.Fatal("the server does not store them")
			}
		}
	}
}

// garbage makes n keys of models that nobody pushed.
func (b *bench) garbage(tb testing.TB, n int) {
	tb.Helper()
	b.fill(tb, n, func(i int) string { return deploySubject(fmt.Sprintf("made-up-%d", i)) }, func(int) []byte { return []byte(receipt) })
}

// TestManyDeployments reads and writes among more keys than the server puts into one
// answer.
func TestManyDeployments(t *testing.T) {
	t.Parallel()
	const many = 1500
	b := begun(t)
	b.fill(t, many, func(i int) string { return deploySubject(fmt.Sprintf("real-%d", i)) }, func(i int) []byte {
		d := registry.Undeployed(fmt.Sprintf("real-%d", i))
		d.Serial, d.Active = 7, versionRef("a")
		return encode(t, d)
	})
	all, _, err := b.Deployments(t.Context())
	if err != nil || len(all) != many+1 || all["real-1499"].Serial != 7 || all["m"].Next != versionRef("a") {
		t.Fatalf("%d deployments, %v", len(all), err)
	}
	b.garbage(t, many)
	all, _, err = b.Deployments(t.Context())
	unreadable := (*registry.UnreadableError)(nil)
	if !errors.As(err, &unreadable) || len(unreadable.Records) != many || len(all) != many+1 {
		t.Fatalf("%d deployments, %v", len(all), err)
	}
	back, err := all["m"].Rollback("test", "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Write(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	d := registry.Undeployed("made-up-7")
	d.Revision = unreadable.Records["made-up-7"]
	b.begin(t, d, "b")
	all, _, err = b.Deployments(t.Context())
	if !errors.As(err, &unreadable) || len(unreadable.Records) != many-1 || all["m"].Phase != registry.Steady || all["made-up-7"].Next != versionRef("b") {
		t.Errorf("%d unreadable, m %+v", len(unreadable.Records), all["m"])
	}
}

// TestManyReports reads those of more workers than the server puts into one answer.
func TestManyReports(t *testing.T) {
	t.Parallel()
	const many = 1500
	b := begun(t)
	b.fill(t, many, func(i int) string { return fmt.Sprintf("$KV.CELLMQ_WORKERS.w%d", i) }, func(i int) []byte {
		return encode(t, registry.Report{Format: 1, Worker: fmt.Sprintf("w%d", i), MemoryBytes: int64(i)})
	})
	all, err := b.Reports(t.Context())
	if err != nil || len(all) != many || all[many-1].Worker != "w999" || all[many-1].MemoryBytes != 999 {
		t.Errorf("%d reports, %v", len(all), err)
	}
}

// TestHealingTakesTurns writes a few records again at a time, and finds all of them
// meanwhile.
func TestHealingTakesTurns(t *testing.T) {
	t.Parallel()
	const hurt = 11
	b := begun(t)
	name := func(i int) string { return fmt.Sprintf("m%d", i) }
	for i := range hurt {
		b.begin(t, registry.Undeployed(name(i)), "b")
		b.store(t, deploySubject(name(i)), []byte(receipt))
	}
	b.garbage(t, 20)
	for healed := 0; healed < hurt; {
		all, _, err := b.Deployments(t.Context())
		if !errors.Is(err, registry.ErrMalformed) || len(all) != hurt+1 {
			t.Fatalf("%d deployments, %v", len(all), err)
		}
		before := healed
		healed = 0
		for i := range hurt {
			if all[name(i)].Next != versionRef("b") {
				t.Errorf("%s: %+v", name(i), all[name(i)])
			}
			healed += b.messages(t, recordStream, deploySubject(name(i))) - 2
		}
		if healed-before < 1 || healed-before > 4 {
			t.Fatalf("%d healed, %d before", healed, before)
		}
	}
	if n := b.messages(t, recordStream, deploySubject("*")); n != 1+3*hurt+20 {
		t.Errorf("%d records: what nobody pushed is written again", n)
	}
}

// TestReadsWhatIsNew asks for all keys once, and then for what was stored since.
func TestReadsWhatIsNew(t *testing.T) {
	t.Parallel()
	b := begun(t)
	b.garbage(t, 200)
	answers := func() uint64 {
		before := b.nc.Stats().InMsgs
		if _, _, err := b.Deployments(t.Context()); !errors.Is(err, registry.ErrMalformed) {
			t.Fatal(err)
		}
		return b.nc.Stats().InMsgs - before
	}
	if n := answers(); n < 200 {
		t.Errorf("%d messages at first", n)
	}
	for range 3 {
		if n := answers(); n > 3 {
			t.Errorf("%d messages for nothing new", n)
		}
	}
	b.begin(t, registry.Undeployed("n"), "b")
	if d := b.deployedAmong(t, "n"); d.Next != versionRef("b") {
		t.Errorf("%+v", d)
	}
}

// deployedAmong reads a deployment where others cannot be read.
func (b *bench) deployedAmong(t *testing.T, model string) *registry.Deployment {
	t.Helper()
	all, _, err := b.Deployments(t.Context())
	if err != nil && !errors.Is(err, registry.ErrMalformed) || all[model] == nil {
		t.Fatalf("%v, %v", all[model], err)
	}
	return all[model]
}

// TestBucketMadeAnew notices that sequences begin again, and that a record was
// purged.
func TestBucketMadeAnew(t *testing.T) {
	t.Parallel()
	b := begun(t)
	b.begin(t, registry.Undeployed("n"), "b")
	if d := b.deployed(t, "n"); d.Revision != 2 {
		t.Fatalf("revision %d", d.Revision)
	}
	b.purge(t, recordStream, deploySubject("n")) // the newest
	all, _, err := b.Deployments(t.Context())
	if err != nil || len(all) != 1 || all["m"] == nil {
		t.Errorf("%v, %v", all, err)
	}
	if err := b.js.DeleteStream(t.Context(), recordStream); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Deployments(t.Context()); !errors.Is(err, registry.ErrNoRegistry) {
		t.Errorf("%v", err)
	}
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, letter := range []string{"c", "d", "e"} {
		b.begin(t, registry.Undeployed(letter), letter)
	}
	all, _, err = b.Deployments(t.Context())
	if err != nil || len(all) != 3 || all["c"].Next != versionRef("c") {
		t.Errorf("%v, %v", all, err)
	}
}

// TestConflictReadsAnew has a record written by somebody else that this registry
// has not read.
func TestConflictReadsAnew(t *testing.T) {
	t.Parallel()
	b := begun(t)
	old := b.deployed(t, "m")
	b.begin(t, registry.Undeployed("n"), "b")
	b.deployed(t, "n")
	b.purge(t, recordStream, deploySubject("m")) // which is not the newest, so nobody notices
	back, err := old.Rollback("test", "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Write(t.Context(), back); !errors.Is(err, registry.ErrConflict) {
		t.Fatalf("%v", err)
	}
	if all, _, err := b.Deployments(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
}

// TestHealingDenied has a reader that may not write: it reads what holds, and does
// not try again and again.
func TestHealingDenied(t *testing.T) {
	t.Parallel()
	b := begun(t)
	s, err := b.js.Stream(t.Context(), recordStream)
	if err != nil {
		t.Fatal(err)
	}
	b.store(t, deploySubject("m"), []byte(receipt))
	c := s.CachedInfo().Config
	c.MaxMsgSize = 100 // too small for a record
	if _, err := b.js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if d := b.deployed(t, "m"); d.Next != versionRef("a") {
			t.Errorf("%+v", d)
		}
	}
	before := b.nc.Stats().OutMsgs
	b.deployed(t, "m")
	if n := b.nc.Stats().OutMsgs - before; n > 1 {
		t.Errorf("%d messages sent, 1 wanted", n)
	}
}

// BenchmarkPoll is what a worker does each second, among keys of models that nobody
// pushed.
func BenchmarkPoll(b *testing.B) {
	for _, n := range []int{0, 900, 5000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			s := setup(b, nil)
			if err := s.Ensure(b.Context()); err != nil {
				b.Fatal(err)
			}
			s.store(b, deploySubject("m"), encode(b, registry.Undeployed("m")))
			s.garbage(b, n)
			for b.Loop() {
				all, _, err := s.Deployments(b.Context())
				if len(all) != 1 {
					b.Fatal(err)
				}
				if err != nil && !strings.Contains(err.Error(), "cannot be read") {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(s.nc.Stats().InMsgs)/float64(b.N), "messages/op")
		})
	}
}
