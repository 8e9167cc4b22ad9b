package registry_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/cellmq/cellmq/registry"
)

func deploySubject(model string) string { return "$KV.CELLMQ_MODELS.deploy." + model }

func versionRef(letter string) registry.Ref {
	return registry.Ref{Version: "v" + letter, Digest: strings.Repeat(letter, 64)}
}

// begun is a server with buckets and a deployment of a, which is written.
func begun(t *testing.T) *bench {
	t.Helper()
	b := setup(t, nil)
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.begin(t, registry.Undeployed("m"), "a")
	return b
}

func (b *bench) begin(t *testing.T, d *registry.Deployment, letter string) *registry.Deployment {
	t.Helper()
	next, err := d.Begin(versionRef(letter), registry.Options{Canary: 1000, Watch: time.Minute, By: "test"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Write(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	return next
}

// deployed reads the deployment of a model.
func (b *bench) deployed(t *testing.T, model string) *registry.Deployment {
	t.Helper()
	all, asked, err := b.Deployments(t.Context())
	if err != nil || all[model] == nil || time.Since(asked) > time.Minute {
		t.Fatalf("%v, asked %v, %v", all, asked, err)
	}
	return all[model]
}

func TestWriteAndRead(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all, _, err := b.Deployments(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("without any: %v, %v", all, err)
	}
	wrote := b.begin(t, registry.Undeployed("m"), "a")
	b.begin(t, registry.Undeployed("n"), "b")
	got := b.deployed(t, "m")
	if got.Revision != wrote.Revision || time.Since(got.Stored).Abs() > time.Minute {
		t.Errorf("revision %d, %d written; stored %v", got.Revision, wrote.Revision, got.Stored)
	}
	got.Stored = time.Time{}
	if string(encode(t, got)) != string(encode(t, wrote)) {
		t.Errorf("%s, wrote %s", encode(t, got), encode(t, wrote))
	}
	if n := b.deployed(t, "n"); n.Next != versionRef("b") {
		t.Errorf("%+v", n)
	}
	wrote.Share = -1
	if err := b.Write(t.Context(), wrote); !errors.Is(err, registry.ErrMalformed) {
		t.Errorf("a share of -1: %v", err)
	}
}

// TestConflict has two write what follows from one record: one wins, and the other
// one's record is not stored.
func TestConflict(t *testing.T) {
	t.Parallel()
	b := begun(t)
	d := b.deployed(t, "m")
	one, errOne := d.Rollback("one", "one")
	two, errTwo := d.Promote(2000)
	if errOne != nil || errTwo != nil {
		t.Fatal(errOne, errTwo)
	}
	results := make(chan error, 2)
	for _, n := range []*registry.Deployment{one, two} {
		go func() { results <- b.Write(t.Context(), n) }()
	}
	lost, won := <-results, <-results
	if won != nil {
		lost, won = won, lost
	}
	if won != nil || !errors.Is(lost, registry.ErrConflict) {
		t.Fatalf("%v and %v", won, lost)
	}
	if got := b.deployed(t, "m"); got.Revision == d.Revision || got.Revision != max(one.Revision, two.Revision) {
		t.Errorf("revision %d after %d, wrote %d and %d", got.Revision, d.Revision, one.Revision, two.Revision)
	}
	if err := b.Write(t.Context(), registry.Undeployed("m")); !errors.Is(err, registry.ErrConflict) {
		t.Errorf("a first record over another: %v", err)
	}
}

func TestDeploymentsWithoutRegistry(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *registry.Config) { c.Timeout = patience })
	began := time.Now()
	_, _, errDeployments := b.Deployments(t.Context())
	_, errReports := b.Reports(t.Context())
	errWrite := b.Write(t.Context(), registry.Undeployed("m"))
	errReport := b.Report(t.Context(), registry.Report{Worker: "w1"})
	took := time.Since(began)
	for name, err := range map[string]error{"deployments": errDeployments, "reports": errReports, "write": errWrite, "report": errReport} {
		if !errors.Is(err, registry.ErrNoRegistry) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if took >= patience { // an answer was waited for, which nobody gives
		t.Errorf("took %v", took)
	}
}

// TestMalformedDeploymentIsHealed has garbage over a record: who reads finds the
// last good one, and writes it again without moving its rule.
func TestMalformedDeploymentIsHealed(t *testing.T) {
	t.Parallel()
	for _, garbage := range []string{receipt, "null", `{"format":1}`, strings.Repeat("[", 10_000), `{"format":1,"model":"n"}`} {
		t.Run(fmt.Sprintf("%.16s", garbage), func(t *testing.T) {
			t.Parallel()
			b := begun(t)
			before := b.deployed(t, "m")
			for range 3 {
				b.store(t, deploySubject("m"), []byte(garbage))
			}
			healed := b.deployed(t, "m")
			if healed.Rule() != before.Rule() || healed.Next != before.Next || healed.Revision <= before.Revision+3 || healed.Stage() != before.Stage() {
				t.Errorf("%+v, before %+v", healed, before)
			}
			again := b.deployed(t, "m")
			if again.Revision != healed.Revision || again.Rule() != before.Rule() {
				t.Errorf("%+v, healed %+v", again, healed)
			}
			if n := b.messages(t, recordStream, deploySubject("m")); n != 5 {
				t.Errorf("%d records, 5 wanted", n)
			}
		})
	}
}

// TestLaterFormatIsKept does not write over what a later cellmq has written.
func TestLaterFormatIsKept(t *testing.T) {
	t.Parallel()
	b := begun(t)
	b.store(t, deploySubject("m"), []byte(`{"format":2,"model":"m","new":true}`))
	_, _, err := b.Deployments(t.Context())
	if unreadable := (*registry.UnreadableError)(nil); !errors.As(err, &unreadable) || unreadable.Records["m"] != 2 {
		t.Errorf("%v", err)
	}
	if n := b.messages(t, recordStream, deploySubject("m")); n != 2 {
		t.Errorf("%d records, 2 wanted", n)
	}
}

// TestDeletedKeyIsUndeployed takes an empty record for none, which operators'
// tools leave, and begins again over it.
func TestDeletedKeyIsUndeployed(t *testing.T) {
	t.Parallel()
	b := begun(t)
	kv, err := b.js.KeyValue(t.Context(), "CELLMQ_MODELS")
	if err != nil {
		t.Fatal(err)
	}
	if err := kv.Delete(t.Context(), "deploy.m"); err != nil {
		t.Fatal(err)
	}
	d := b.deployed(t, "m")
	if d.Next != (registry.Ref{}) || d.Serial != 0 {
		t.Errorf("%+v", d)
	}
	b.begin(t, d, "b")
	if err := kv.Purge(t.Context(), "deploy.m"); err != nil {
		t.Fatal(err)
	}
	b.begin(t, b.deployed(t, "m"), "c")
	if d := b.deployed(t, "m"); d.Next != versionRef("c") {
		t.Errorf("%+v", d)
	}
}

// TestFloodOfReceipts pushes a record out of its history: the model's is gone, the
// others' are not, and a new one can be written.
func TestFloodOfReceipts(t *testing.T) {
	t.Parallel()
	b := begun(t)
	b.begin(t, registry.Undeployed("n"), "b")
	for range 17 {
		b.store(t, deploySubject("m"), []byte(receipt))
	}
	b.store(t, deploySubject("Not_A_Model"), []byte(receipt))
	all, _, err := b.Deployments(t.Context())
	unreadable := (*registry.UnreadableError)(nil)
	if !errors.Is(err, registry.ErrMalformed) || !errors.As(err, &unreadable) || !strings.Contains(err.Error(), `"m"`) {
		t.Fatalf("%v", err)
	}
	if len(all) != 1 || all["n"].Next != versionRef("b") || len(unreadable.Records) != 1 {
		t.Errorf("%v, %v", all, unreadable.Records)
	}
	d := registry.Undeployed("m")
	d.Revision = unreadable.Records["m"]
	b.begin(t, d, "c")
	if d := b.deployed(t, "m"); d.Next != versionRef("c") {
		t.Errorf("%+v", d)
	}
}

func TestReports(t *testing.T) {
	t.Parallel()
	b := begun(t)
	long := registry.Report{Worker: "w2", MemoryBytes: 7, BudgetBytes: 9, Models: []registry.ModelReport{{Model: "m", Serial: 1, Versions: []registry.VersionReport{{
		Ref: versionRef("a"), State: registry.StateFailed, Reason: strings.Repeat("é\n", 1000), Weights: "f32", LoadMillis: 1, WeightBytes: 2, SharedBytes: 3,
		StateBytes: 4, Golden: 5, GoldenEqual: 6, SelfMade: true, Running: 8, Counts: registry.Counts{Ended: 10, Failed: 11},
	}}}}}
	for _, r := range []registry.Report{long, {Worker: "w1", Models: long.Models}, {Worker: "w1"}} {
		if err := b.Report(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	b.store(t, "$KV.CELLMQ_WORKERS.w3", []byte(receipt))
	b.store(t, "$KV.CELLMQ_WORKERS.w4", encode(t, registry.Report{Format: 1, Worker: "w5"}))
	got, err := b.Reports(t.Context())
	if err != nil || len(got) != 2 || got[0].Worker != "w1" || len(got[0].Models) != 0 || got[1].Worker != "w2" {
		t.Fatalf("%+v, %v", got, err)
	}
	v := got[1].Models[0].Versions[0]
	if len(v.Reason) > 512 || !strings.HasPrefix(v.Reason, "é é ") {
		t.Errorf("reason %q", v.Reason)
	}
	want := long.Models[0].Versions[0]
	want.Reason = v.Reason
	if v != want || got[1].MemoryBytes != 7 || got[1].BudgetBytes != 9 {
		t.Errorf("%+v, want %+v", got[1], want)
	}
	many := make([]registry.VersionReport, 9)
	for name, r := range map[string]registry.Report{
		"no name": {}, "a dot": {Worker: "w.1"}, "a budget of -1": {Worker: "w", BudgetBytes: -1},
		"-1 more models": {Worker: "w", Omitted: -1},
		"9 versions":     {Worker: "w", Models: []registry.ModelReport{{Model: "m", Versions: many}}},
		"no model name":  {Worker: "w", Models: []registry.ModelReport{{}}},
	} {
		if err := b.Report(t.Context(), r); !errors.Is(err, registry.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	models := make([]registry.ModelReport, 256)
	for i := range models {
		models[i] = long.Models[0]
	}
	if err := b.Report(t.Context(), registry.Report{Worker: "w", Models: models}); err == nil || !strings.Contains(err.Error(), "65536 wanted") {
		t.Errorf("a report too long: %v", err)
	}
}

// TestReportOfAnyNumberOfModels has more models than a record has room for: those that
// are named first are there, and how many are not is too.
func TestReportOfAnyNumberOfModels(t *testing.T) {
	t.Parallel()
	b := begun(t)
	for name, reason := range map[string]string{"short": "", "long": strings.Repeat("\"", 700)} {
		models := make([]registry.ModelReport, 1000)
		for i := range models {
			models[i] = registry.ModelReport{Model: fmt.Sprint("m", i), Serial: 1, Versions: []registry.VersionReport{{
				Ref: versionRef("a"), State: registry.StateFailed, Reason: reason,
			}}}
		}
		if err := b.Report(t.Context(), registry.Report{Worker: name, Models: models}.Fit()); err != nil {
			t.Error(err)
		}
	}
	got, err := b.Reports(t.Context())
	if err != nil || len(got) != 2 {
		t.Fatalf("%d reports, %v", len(got), err)
	}
	for i, least := range []int{50, 200} {
		r := got[i]
		if n := len(r.Models); n < least || n+r.Omitted != 1000 || r.Models[0].Model != "m0" || r.Models[n-1].Model != fmt.Sprint("m", n-1) {
			t.Errorf("%s: %d models, %d omitted", r.Worker, n, r.Omitted)
		}
	}
	if r := (registry.Report{Worker: "w", Models: []registry.ModelReport{{Model: "m"}}}).Fit(); r.Omitted != 0 || len(r.Models) != 1 {
		t.Errorf("%+v", r)
	}
}

// TestReportsExpire looks at the bucket's limits, and lets a report go under
// shorter ones.
func TestReportsExpire(t *testing.T) {
	t.Parallel()
	b := begun(t)
	s, err := b.js.Stream(t.Context(), "KV_CELLMQ_WORKERS")
	if err != nil {
		t.Fatal(err)
	}
	c := s.CachedInfo().Config
	if c.MaxAge != registry.ReportLife || c.Storage != jetstream.FileStorage {
		t.Errorf("reports live for %v in %v", c.MaxAge, c.Storage)
	}
	c.MaxAge, c.Duplicates = time.Second, time.Second
	if _, err := b.js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := b.Report(t.Context(), registry.Report{Worker: "w1"}); err != nil {
		t.Fatal(err)
	}
	if all, err := b.Reports(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%v, %v", all, err)
	}
	for tick := time.Tick(100 * time.Millisecond); ; <-tick {
		all, err := b.Reports(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(all) == 0 {
			return
		}
	}
}
