package top

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// View is a fleet at one moment.
type View struct {
	Time    time.Time
	Workers []WorkerView
	Models  []ModelView

	Requests, Failures, Tokens, Steps float64 // in a second
	Running, Slots                    int
	Queued                            uint64
	Latency                           broker.LiveLatency
	Letters                           uint64
	Refused                           int
	LastRefusal                       error
	Unshown                           int // workers that there was no room for
}

// WorkerView is a worker.
type WorkerView struct {
	Name, State, Reason, Version, ISA string
	Found                             bool // service discovery knows it too
	Uptime                            time.Duration
	Running, Slots                    int
	Requests, Tokens                  float64 // in a second
	Bytes                             int64
	Executors                         []ExecutorView
}

// ExecutorView is an executor: Busy is the share of the time in which it ran steps.
type ExecutorView struct {
	Busy    float64
	Threads int
	Cell    string
}

// ModelView is a model on all workers.
type ModelView struct {
	Name               string
	Versions           []string
	Workers, Running   int
	Queued             *broker.LiveQueued // of the worker that asked last
	Requests, Failures float64
	Tokens             float64
	Latency            broker.LiveLatency
	Cells              []CellView
}

// CellView is a cell on all workers. Rows is the mean of a step, Recent the rows of
// the last steps.
type CellView struct {
	Name    string
	MaxRows int
	Rows    float64
	Steps   float64 // in a second
	Ready   int
	Recent  []int

	rows float64 // in a second
}

// idle reports whether the model ran nothing lately, and has nothing to run.
func (m *ModelView) idle() bool {
	return m.Running == 0 && !slices.ContainsFunc(m.Cells, func(c CellView) bool { return c.Steps > 0 || c.Ready > 0 })
}

// View returns the fleet at this moment: rates are those between the last two
// snapshots of each worker.
func (f *Fleet) View(now time.Time) *View {
	v := &View{Time: now, Refused: f.Refused, LastRefusal: f.LastRefusal, Unshown: len(f.unshown)}
	models := map[string]*ModelView{}
	for _, name := range slices.Sorted(maps.Keys(f.members)) {
		m := f.members[name]
		w := m.view()
		w.Found = f.found(name)
		v.Workers = append(v.Workers, w)
		m.addTo(v, models)
	}
	for _, name := range slices.Sorted(maps.Keys(models)) {
		m := models[name]
		for i := range m.Cells {
			if c := &m.Cells[i]; c.Steps > 0 {
				c.Rows = c.rows / c.Steps
			}
		}
		v.Models = append(v.Models, *m)
		v.Requests += m.Requests
		v.Failures += m.Failures
		if q := m.Queued; q != nil {
			v.Queued += q.High + q.Std + q.Low
		}
		merge(&v.Latency, &m.Latency)
	}
	return v
}

func merge(sum, l *broker.LiveLatency) {
	sum.Broker.Merge(l.Broker)
	sum.Queue.Merge(l.Queue)
	sum.FirstToken.Merge(l.FirstToken)
	sum.InterToken.Merge(l.InterToken)
	sum.Total.Merge(l.Total)
}

// view is the worker by itself.
func (m *member) view() WorkerView {
	s := m.last
	w := WorkerView{
		Name: s.Worker, State: s.State, Reason: s.Reason, Version: s.Version, ISA: s.ISA,
		Uptime:  time.Duration(s.Uptime) * time.Millisecond,
		Running: s.Running + s.RealtimeRunning, Slots: s.Slots + s.RealtimeSlots, Bytes: s.MemoryBytes,
	}
	seconds := m.seconds()
	if m.before != nil {
		w.Tokens = rate(s.Tokens, m.before.Tokens, seconds)
	}
	for i := range s.Models {
		now := &s.Models[i]
		ok, failed := outcomes(now)
		wasOK, wasFailed := outcomes(m.modelBefore(now.Name))
		w.Requests += rate(ok+failed, wasOK+wasFailed, seconds)
	}
	for i, x := range s.Executors {
		e := ExecutorView{Threads: x.Threads, Cell: strings.TrimPrefix(x.Model+" "+x.Cell, " ")}
		if m.before != nil && i < len(m.before.Executors) {
			e.Busy = min(rate(x.BusyUS, m.before.Executors[i].BusyUS, seconds)/1e6, 1)
		}
		w.Executors = append(w.Executors, e)
	}
	return w
}

// modelBefore is a model in the snapshot before the last; an empty one if it was not
// there.
func (m *member) modelBefore(name string) *broker.LiveModel {
	if m.before != nil {
		for i := range m.before.Models {
			if m.before.Models[i].Name == name {
				return &m.before.Models[i]
			}
		}
	}
	return &broker.LiveModel{}
}

// outcomes counts the requests that left as they should, and the others.
func outcomes(m *broker.LiveModel) (ok, failed uint64) {
	for outcome, n := range m.Outcomes {
		switch outcome {
		case string(broker.FinishStop), string(broker.FinishLength):
			ok += n
		default:
			failed += n
		}
	}
	return ok, failed
}

// addTo adds the worker's figures to those of all.
func (m *member) addTo(v *View, models map[string]*ModelView) {
	s, seconds := m.last, m.seconds()
	v.Running += s.Running + s.RealtimeRunning
	v.Slots += s.Slots + s.RealtimeSlots
	v.Letters += s.Letters
	if m.before != nil {
		v.Tokens += rate(s.Tokens, m.before.Tokens, seconds)
		v.Steps += rate(s.Steps, m.before.Steps, seconds)
	}
	for i := range s.Models {
		now, was := &s.Models[i], m.modelBefore(s.Models[i].Name)
		mv := models[now.Name]
		if mv == nil {
			mv = &ModelView{Name: now.Name}
			models[now.Name] = mv
		}
		mv.Workers++
		mv.Running += now.Running
		if m.before != nil {
			mv.add(now, was, seconds)
		}
		if now.Queued != nil && (mv.Queued == nil || now.Queued.Age < mv.Queued.Age) {
			mv.Queued = now.Queued
		}
		for _, version := range now.Versions {
			if label := version.Version + " " + version.State; !slices.Contains(mv.Versions, label) {
				mv.Versions = append(mv.Versions, label)
			}
		}
		merge(&mv.Latency, &now.Latency)
		mv.addCells(s, i, was, seconds)
	}
}

// add adds rates of a model.
func (mv *ModelView) add(now, was *broker.LiveModel, seconds float64) {
	ok, failed := outcomes(now)
	wasOK, wasFailed := outcomes(was)
	mv.Requests += rate(ok+failed, wasOK+wasFailed, seconds)
	mv.Failures += rate(failed, wasFailed, seconds)
	mv.Tokens += rate(now.Tokens, was.Tokens, seconds)
}

// addCells adds the cells of the model that has a place in a snapshot.
func (mv *ModelView) addCells(s *broker.Snapshot, place int, was *broker.LiveModel, seconds float64) {
	for i, c := range s.Models[place].Cells {
		at := slices.IndexFunc(mv.Cells, func(v CellView) bool { return v.Name == c.Name })
		if at < 0 {
			at = len(mv.Cells)
			mv.Cells = append(mv.Cells, CellView{Name: c.Name})
		}
		v := &mv.Cells[at]
		v.MaxRows = max(v.MaxRows, c.MaxRows)
		v.Ready += c.Ready
		if j := slices.IndexFunc(was.Cells, func(b broker.LiveCell) bool { return b.Name == c.Name }); j >= 0 {
			v.Steps += rate(c.Steps, was.Cells[j].Steps, seconds)
			v.rows += rate(c.Rows, was.Cells[j].Rows, seconds)
		}
		for _, step := range s.Recent {
			if step.Model == place && step.Cell == i {
				v.Recent = append(v.Recent, step.Rows)
			}
		}
	}
}

// Order is what workers and models are sorted by.
type Order int

// The orders.
const (
	ByName Order = iota
	ByRunning
	ByQueued
	ByTokens
	ByLatency
	orders
)

// String names the order.
func (o Order) String() string {
	return [...]string{"name", "running", "queued", "tokens", "p99"}[o]
}

// Arrange keeps what has a text in its name, and sorts it: the most first, but for
// names.
func (v *View) Arrange(o Order, filter string) {
	matches := func(name string) bool { return strings.Contains(strings.ToLower(name), strings.ToLower(filter)) }
	if filter != "" {
		models, workers := len(v.Models), len(v.Workers)
		keptModels := slices.DeleteFunc(slices.Clone(v.Models), func(m ModelView) bool { return !matches(m.Name) })
		keptWorkers := slices.DeleteFunc(slices.Clone(v.Workers), func(w WorkerView) bool { return !matches(w.Name) })
		// A text that is in names of the one kind only does not hide the other.
		if len(keptModels) > 0 || len(keptWorkers) == 0 || models == 0 {
			v.Models = keptModels
		}
		if len(keptWorkers) > 0 || len(keptModels) == 0 || workers == 0 {
			v.Workers = keptWorkers
		}
	}
	slices.SortStableFunc(v.Workers, func(a, b WorkerView) int { return cmp.Compare(b.key(o), a.key(o)) })
	slices.SortStableFunc(v.Models, func(a, b ModelView) int { return cmp.Compare(b.key(o), a.key(o)) })
}

func (w *WorkerView) key(o Order) float64 {
	switch o {
	case ByRunning, ByQueued, ByLatency:
		return float64(w.Running)
	case ByTokens:
		return w.Tokens
	}
	if w.Found { // asked for only when not all have room
		return 1
	}
	return 0
}

func (m *ModelView) key(o Order) float64 {
	switch o {
	case ByRunning:
		return float64(m.Running)
	case ByQueued:
		if m.Queued != nil {
			return float64(m.Queued.High + m.Queued.Std + m.Queued.Low)
		}
	case ByTokens:
		return m.Tokens
	case ByLatency:
		return float64(m.Latency.Total.Quantile(0.99))
	}
	return 0
}
