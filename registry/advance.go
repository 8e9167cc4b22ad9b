package registry

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// When a version is refused.
const (
	loadLimit = 10 * time.Minute // for all workers to load it
	minFailed = 5                // requests
	rateTimes = 2.0              // the old version's rate of failures, and
	rateMore  = 0.02             // of all requests more
	minBeside = 100              // requests of the old version since the beginning that make a rate
)

// Base is what a worker had counted when loading ended.
type Base struct {
	Worker string `json:"worker"`
	// New are the counts of the version that was loaded, Old those of the active.
	New Counts `json:"new"`
	Old Counts `json:"old"`
}

// server is a worker that serves the model of a deployment.
type server struct {
	worker string
	report *ModelReport
}

// Advance returns the record that follows from what workers report, and whether
// there is one. The same inputs give the same record, so whoever comes first writes
// it: [Registry.Write] stores one of them.
//
// Age is for how long this process has known the [Stage] of the deployment. Without
// a report that names the model nothing changes. Reports expire while the server is
// away: who has connected again, or has started while a deployment was under way, does
// not call it for [ReportLife], since others may not have reported yet.
func (d *Deployment) Advance(reports []Report, age time.Duration, by string) (next *Deployment, changed bool) {
	servers := d.servers(reports)
	if d.Phase == Steady || len(servers) == 0 || d.fresh() != nil {
		return d, false
	}
	if reason := d.blame(servers); reason != "" {
		return d.refuse(reason, by), true
	}
	waiting := d.waiting(servers)
	switch d.Phase {
	case Loading:
		if waiting == "" && age < ReportLife && d.leftOut(reports) {
			return d, false
		}
		if waiting == "" {
			return d.loaded(servers, by), true
		}
		if age >= loadLimit {
			return d.refuse(fmt.Sprintf("not loaded within %v: %s", loadLimit, waiting), by), true
		}
	case Canary:
		if d.Hold > 0 && age >= time.Duration(d.Hold) && waiting == "" {
			return d.promote(by), true
		}
	case Watching:
		if age >= time.Duration(d.Watch) {
			return d.change(by, (*Deployment).end), true
		}
	}
	return d, false
}

// servers are the workers whose reports name the model, by name.
func (d *Deployment) servers(reports []Report) []server {
	var all []server
	for i := range reports {
		if m := reports[i].model(d.Model); m != nil {
			all = append(all, server{reports[i].Worker, m})
		}
	}
	slices.SortFunc(all, func(a, b server) int { return cmp.Compare(a.worker, b.worker) })
	return all
}

// leftOut says whether a report may leave out the model. One that serves it names it
// in its next report, since deployments under way come first.
func (d *Deployment) leftOut(reports []Report) bool {
	return slices.ContainsFunc(reports, func(r Report) bool { return r.Omitted > 0 && r.model(d.Model) == nil })
}

// loaded begins what loading was for.
func (d *Deployment) loaded(servers []server, by string) *Deployment {
	var base []Base
	for _, s := range servers[:min(len(servers), maxBaseline)] {
		base = append(base, Base{Worker: s.worker, New: s.report.counts(d.Next), Old: s.report.beside(d.Active, d.Next)})
	}
	if d.Canary != Whole {
		return d.change(by, func(n *Deployment) { n.Phase, n.Share, n.Baseline = Canary, d.Canary, base })
	}
	n := d.promote(by)
	if n.Phase == Watching {
		n.Baseline = base
	}
	return n
}

// sides are the version that is judged and the one beside it.
func (d *Deployment) sides() (judged, beside Ref) {
	if d.Phase == Watching {
		return d.Active, d.Previous
	}
	return d.Next, d.Active
}

// waiting names a worker that does not have the new version ready.
func (d *Deployment) waiting(servers []server) string {
	judged, _ := d.sides()
	for _, s := range servers {
		v := s.report.version(judged)
		switch {
		case s.report.Serial != d.Serial:
			return fmt.Sprintf("worker %.64s does not know of it", s.worker)
		case v == nil:
			return fmt.Sprintf("worker %.64s has not begun", s.worker)
		case v.State != StateWarm && v.State != StateLive:
			return strings.TrimSuffix(fmt.Sprintf("worker %.64s is %.16s: %.200s", s.worker, v.State, v.Reason), ": ")
		}
	}
	return ""
}

// blame says why the new version must not serve, or "".
func (d *Deployment) blame(servers []server) string {
	judged, beside := d.sides()
	for _, s := range servers {
		if v := s.report.version(judged); v != nil && v.State == StateFailed && s.report.Serial == d.Serial {
			return fmt.Sprintf("worker %.64s: %s", s.worker, cmp.Or(v.Reason, "failed"))
		}
	}
	if d.Phase == Loading {
		return ""
	}
	var got, old, oldEver Counts
	for _, s := range servers {
		base, counted := d.base(s.worker)
		if !counted {
			continue
		}
		got = got.plus(s.report.counts(judged).less(base.New))
		ever := s.report.beside(beside, judged)
		old, oldEver = old.plus(ever.less(base.Old)), oldEver.plus(ever)
	}
	if old.Ended < minBeside {
		old = oldEver
	}
	if got.Failed < minFailed || got.rate() <= rateTimes*old.rate()+rateMore {
		return ""
	}
	return fmt.Sprintf("%d of %d requests failed, %d of %d with %s", got.Failed, got.Ended, old.Failed, old.Ended, beside.name())
}

// base is what a worker had counted before. One that is not in the baseline came
// later; unless the baseline is full, when that is not known.
func (d *Deployment) base(worker string) (b Base, counted bool) {
	i := slices.IndexFunc(d.Baseline, func(b Base) bool { return b.Worker == worker })
	if i < 0 {
		return b, len(d.Baseline) < maxBaseline
	}
	return d.Baseline[i], true
}

// third names a worker that has two versions of a model beside another.
func third(model string, to Ref, reports []Report) (worker, others string) {
	for i := range reports {
		m := reports[i].model(model)
		if m == nil {
			continue
		}
		var loaded []string
		for j := range m.Versions {
			if v := &m.Versions[j]; !v.same(to) && holds(v.State) {
				loaded = append(loaded, v.name())
			}
		}
		if len(loaded) >= 2 {
			return reports[i].Worker, strings.Join(loaded[:2], " and ")
		}
	}
	return "", ""
}
