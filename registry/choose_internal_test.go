package registry

import (
	"math"
	"strconv"
	"testing"
	"time"
)

func TestCanaryShare(t *testing.T) {
	t.Parallel()
	const ids = 100_000
	for _, share := range []int{0, 1, 1000, 5000, 9999, Whole} {
		n := 0
		for i := range ids {
			if (Rule{Active: ref("a"), Next: ref("b"), Share: share}).Choose("m", strconv.Itoa(i)) == ref("b") {
				n++
			}
		}
		p := float64(share) / Whole
		if off := math.Abs(float64(n) - p*ids); off > 4*math.Sqrt(ids*p*(1-p)) {
			t.Errorf("share %d: %d of %d", share, n, ids)
		}
	}
}

// TestSameSideForRetry asks again with other shares: who is in one is in all larger
// ones. Another version has other ids.
func TestSameSideForRetry(t *testing.T) {
	t.Parallel()
	both := 0
	for i := range 10_000 {
		id, in := strconv.Itoa(i), false
		for _, share := range []int{0, 10, 1000, 1001, 5000, Whole} {
			r := Rule{Active: ref("a"), Next: ref("b"), Share: share}
			got := r.Choose("m", id)
			if in && got != r.Next {
				t.Fatalf("id %s leaves at share %d", id, share)
			}
			if in = got == r.Next; r.Choose("m", id) != got {
				t.Fatalf("id %s at share %d changes sides", id, share)
			}
			r.Active = ref("d")
			if (r.Choose("m", id) == r.Next) != in {
				t.Fatalf("id %s at share %d depends on the active version", id, share)
			}
		}
		if (Rule{Next: ref("b"), Share: 1000}).Choose("m", id) == ref("b") && (Rule{Next: ref("c"), Share: 1000}).Choose("m", id) == ref("c") {
			both++
		}
	}
	if both == 0 || both > 200 {
		t.Errorf("%d ids of 10000 are in 10 %% of each of two versions", both)
	}
}

func TestAt(t *testing.T) {
	t.Parallel()
	d := deployment(Canary)
	d.Past = []Rule{{Active: ref("a"), From: clock(-10)}, {Active: ref("d"), From: clock(-20)}}
	lead := Lead.Seconds()
	for _, tt := range []struct {
		at   float64
		want Rule
	}{
		{-100, d.Past[1]},
		{-20, d.Past[1]},
		{-10.001, d.Past[1]},
		{-10, d.Past[0]},
		{lead - 0.001, d.Past[0]},
		{lead, Rule{Active: ref("a"), Next: ref("b"), Share: 1000, From: clock(lead)}},
		{1e6, Rule{Active: ref("a"), Next: ref("b"), Share: 1000, From: clock(lead)}},
	} {
		if got := d.At(clock(tt.at)); got != tt.want {
			t.Errorf("at %v: %+v, want %+v", tt.at, got, tt.want)
		}
	}
	next, err := d.Promote(5000)
	if err != nil || next.At(clock(1e6)) != next.Past[0] || next.Past[0].From != clock(lead) {
		t.Errorf("before it is stored: %+v, %v", next, err)
	}
	next.Stored = clock(-60) // the server's clock was put back
	if from := next.Rule().From; from != clock(lead) {
		t.Errorf("a rule from %v is before the last one", from)
	}
	if got := Undeployed("m").At(time.Time{}); got.Active != (Ref{}) || got.Share != 0 {
		t.Errorf("undeployed: %+v", got)
	}
}

// TestStage tells steps from records that are written again.
func TestStage(t *testing.T) {
	t.Parallel()
	d := deployment(Canary)
	again := d.over(9)
	again.Stored = clock(100)
	if again.Revision != 9 || again.Stage() != d.Stage() {
		t.Errorf("%+v, %+v", again.Stage(), d.Stage())
	}
	next, err := d.Promote(2000)
	if err != nil || next.Stage() == d.Stage() {
		t.Errorf("%+v after a promotion, %v", next.Stage(), err)
	}
}
