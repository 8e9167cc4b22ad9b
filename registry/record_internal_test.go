package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

// fullDeployment is at every bound, with text that JSON makes longer.
func fullDeployment() *Deployment {
	d := deployment(Canary)
	wide := func(n int) Ref {
		return Ref{Version: strings.Repeat("<", maxTextBytes), Digest: strings.Repeat(fmt.Sprintf("%x", n), sumLength)}
	}
	d.Model, d.Serial, d.Active, d.Next, d.Previous = strings.Repeat("m", maxModelName), 1<<63, wide(0), wide(1), wide(2)
	d.Deleting = wide(12)
	d.Reason, d.By = strings.Repeat("<", maxReason), strings.Repeat("<", maxBy)
	d.Since = time.Date(2026, 1, 2, 3, 4, 5, 123456789, time.UTC)
	d.Past = nil
	for i := range maxPast {
		d.Past = append(d.Past, Rule{Active: wide(i), Next: wide(i + 1), Share: Whole, From: d.Since})
		d.Refused = append(d.Refused, wide(3+i))
	}
	for i := range maxBaseline {
		d.Baseline = append(d.Baseline, Base{Worker: fmt.Sprintf("%064d", i), New: Counts{1 << 63, 1 << 63}, Old: Counts{1 << 63, 1 << 63}})
	}
	return d
}

func TestFullDeployment(t *testing.T) {
	t.Parallel()
	d := fullDeployment()
	b, err := d.encode()
	if err != nil || len(b) > deploymentBytes/2 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	got, err := parseDeployment(b, d.Model)
	if err != nil {
		t.Fatal(err)
	}
	got.Revision, got.Stored = d.Revision, d.Stored
	if !reflect.DeepEqual(got, d) {
		t.Errorf("%+v, want %+v", got, d)
	}
}

// TestHostileDeployments changes one thing of a good record.
func TestHostileDeployments(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(d *Deployment){
		"format":               func(d *Deployment) { d.Format = 2 },
		"model":                func(d *Deployment) { d.Model = "n" },
		"phase":                func(d *Deployment) { d.Phase = "lost" },
		"share below 0":        func(d *Deployment) { d.Share = -1 },
		"share above all":      func(d *Deployment) { d.Share = Whole + 1 },
		"canary":               func(d *Deployment) { d.Canary = Whole + 1 },
		"hold":                 func(d *Deployment) { d.Hold = -1 },
		"watch":                func(d *Deployment) { d.Watch = Duration(maxWatch) + 1 },
		"deleting serves":      func(d *Deployment) { d.Deleting = d.Active },
		"deleting is next":     func(d *Deployment) { d.Deleting = d.Next },
		"deleting is kept":     func(d *Deployment) { d.Deleting = d.Previous },
		"deleting nothing":     func(d *Deployment) { d.Deleting.Version = "1" },
		"long reason":          func(d *Deployment) { d.Reason = strings.Repeat("x", maxReason+1) },
		"reason of two lines":  func(d *Deployment) { d.Reason = "x\ny" },
		"long by":              func(d *Deployment) { d.By = strings.Repeat("x", maxBy+1) },
		"active without sum":   func(d *Deployment) { d.Active.Digest = "" },
		"next without name":    func(d *Deployment) { d.Next.Version = "" },
		"canary of nothing":    func(d *Deployment) { d.Next = Ref{} },
		"canary of the active": func(d *Deployment) { d.Next = d.Active },
		"steady with next":     func(d *Deployment) { d.Phase = Steady },
		"loading with share":   func(d *Deployment) { d.Phase = Loading },
		"watching the same":    func(d *Deployment) { d.Phase, d.Next, d.Share, d.Previous = Watching, Ref{}, 0, d.Active },
		"refused serves":       func(d *Deployment) { d.Refused = []Ref{d.Active} },
		"refused is next":      func(d *Deployment) { d.Refused = []Ref{d.Next} },
		"refused nothing":      func(d *Deployment) { d.Refused = []Ref{{}} },
		"nine refused":         func(d *Deployment) { d.Refused = make([]Ref, maxRefused+1) },
		"nine past":            func(d *Deployment) { d.Past = make([]Rule, maxPast+1) },
		"past from never":      func(d *Deployment) { d.Past = []Rule{{}} },
		"past share":           func(d *Deployment) { d.Past[0].Share = -1 },
		"past version":         func(d *Deployment) { d.Past[0].Active.Digest = "x" },
		"65 workers":           func(d *Deployment) { d.Baseline = make([]Base, maxBaseline+1) },
		"worker":               func(d *Deployment) { d.Baseline = []Base{{Worker: "w.1"}} },
	} {
		d := deployment(Canary)
		change(d)
		b, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseDeployment(b, "m"); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
		if _, err := d.encode(); err == nil && name != "model" {
			t.Errorf("%s is written", name)
		}
	}
	good, err := json.Marshal(deployment(Canary))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"", "{}", string(good) + "x", string(good[:len(good)-1]), strings.Replace(string(good), `"format"`, `"x":1,"format"`, 1),
		strings.Repeat(" ", deploymentBytes) + string(good), strings.Replace(string(good), `"hold":"1m0s"`, `"hold":"`+strings.Repeat("1h", 100)+`"`, 1),
	} {
		if d, err := parseDeployment([]byte(text), "m"); err == nil || len(err.Error()) > 512 {
			t.Errorf("%.100s: %+v, %v", text, d, err)
		}
	}
}

// allocates wants read to allocate in proportion to what it reads. What else runs
// in the process allocates too, so the least of three counts.
func allocates(t *testing.T, times int, b []byte, read func()) {
	t.Helper()
	least := ^uint64(0)
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		read()
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	if most := uint64(times*len(b) + 64<<10); least > most {
		t.Errorf("%d bytes allocated for %d, at most %d wanted", least, len(b), most)
	}
}

func FuzzDeployment(f *testing.F) {
	for _, d := range []*Deployment{Undeployed("m"), deployment(Steady), deployment(Loading), deployment(Canary), deployment(Watching), fullDeployment()} {
		b, err := json.Marshal(d)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"format":1,"model":"m","past":[` + strings.Repeat("{},", 20_000) + `{}]}`))
	f.Add([]byte(`{"format":1,"model":"m","baseline":[` + strings.Repeat("{},", 20_000) + `{}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var d *Deployment
		var err error
		allocates(t, 64, b, func() { d, err = parseDeployment(b, "m") })
		if err != nil {
			return
		}
		again, err := d.encode()
		if err != nil {
			t.Fatalf("read and not written: %v", err)
		}
		other, err := parseDeployment(again, "m")
		if err != nil {
			t.Fatal(err)
		}
		if third, err := other.encode(); err != nil || !bytes.Equal(third, again) {
			t.Errorf("%s, %s, %v", again, third, err)
		}
		d.Stored = clock(0)
		if len(d.Wanted()) > 2 {
			t.Error("more than two versions wanted")
		}
		d.At(clock(1)).Choose("m", "id")
		if n, changed := d.Advance([]Report{report("w1", d.Serial, VersionReport{Ref: d.Next, State: StateWarm})}, time.Hour, "w1"); changed {
			if _, err := n.encode(); err != nil {
				t.Errorf("what follows is not written: %v", err)
			}
		}
	})
}

func FuzzReport(f *testing.F) {
	full := report("w", 3, has("a", "live", 5, 6), has("b", "failed"))
	full.MemoryBytes, full.Models[0].Versions[0].Reason = 1, "why"
	b, err := full.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"format":1,"worker":"w","models":[` + strings.Repeat("{},", 20_000) + `{}]}`))
	f.Add([]byte(`{"format":1,"worker":"w","models":[{"model":"m","versions":[` + strings.Repeat("{},", 20_000) + `{}]}]}`))
	f.Add([]byte(`{"format":1,"worker":"w","models":[` + strings.Repeat(`{"model":"m","versions":[{},{},{},{},{},{},{},{}]},`, 200) + `{}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r *Report
		var err error
		allocates(t, 128, b, func() { r, err = parseReport(b, "w") })
		if err != nil {
			return
		}
		again, err := r.encode()
		if err != nil {
			return // longer than it was
		}
		other, err := parseReport(again, "w")
		if err != nil || !reflect.DeepEqual(other.Models, r.Models) && len(r.Models) > 0 {
			t.Errorf("%+v, %+v, %v", r, other, err)
		}
		deployment(Canary).Advance([]Report{*r}, time.Hour, "w")
	})
}
