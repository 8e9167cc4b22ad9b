package registry

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
)

// readAnew is after how long all records of deployments are read again, for what
// was purged and for what could not be written.
const readAnew = time.Minute

// view is what was read of the deployments' records. It does not change: what is
// read later makes another. Records of keys that are no names of models are not in
// it.
type view struct {
	read   time.Time // when all records were read
	newest stamp

	good       map[string]record // by model
	unreadable map[string]uint64 // the last records' sequences, of models without a deployment
}

// stamp tells whether a message is the one that it was.
type stamp struct {
	subject string
	seq     uint64
	at      time.Time
}

// record is the last one of a model that can be read.
type record struct {
	deployment *Deployment
	last       uint64 // sequence of the last record. Another than the deployment's: it cannot be read
	tried      bool   // and could not be written over
}

// hurt says whether another record lies over the good one.
func (c record) hurt() bool { return c.last != c.deployment.Revision }

// copy is what holds, for a caller to change, and to write over the last record.
func (c record) copy() *Deployment {
	n := c.deployment.over(c.last)
	if !c.hurt() {
		n.Since = c.deployment.Since
	}
	n.Stored = c.deployment.Stored
	return n
}

// lookAtDeployments reads the records of deployments: those that are new since the last time, or
// all of them when the newest of that time is no longer there.
//
// Records of two models need not be of the same moment: nothing follows from two of
// them together, and each is replaced by comparing its own sequence.
func (r *Registry) lookAtDeployments(ctx context.Context) (*view, error) {
	if old := r.seen.Load(); old != nil && time.Since(old.read) < readAnew {
		v, err := r.lookOn(ctx, old)
		if !errors.Is(err, errOther) {
			return v, err
		}
	}
	began := time.Now()
	v := &viewer{view: view{read: began, good: map[string]record{}, unreadable: map[string]uint64{}}, own: true}
	err := r.each(ctx, r.recordStream(), r.deploySubject("*"), func(subject string, seq uint64, at time.Time, data []byte) error {
		v.add(strings.TrimPrefix(subject, r.deploySubject("")), stamp{subject, seq, at}, data)
		return nil
	})
	return &v.view, err
}

// errOther says that another message is where the newest was.
var errOther = errors.New("registry: another message")

// lookOn reads what is new. It begins with the newest it knows, which tells whether
// the bucket is the same.
func (r *Registry) lookOn(ctx context.Context, old *view) (*view, error) {
	v := &viewer{view: *old}
	same := false
	err := r.eachFrom(ctx, r.recordStream(), r.deploySubject("*"), old.newest.seq, func(subject string, seq uint64, at time.Time, data []byte) error {
		s := stamp{subject, seq, at}
		switch {
		case same:
			v.add(strings.TrimPrefix(subject, r.deploySubject("")), s, data)
		case s != old.newest:
			return errOther
		}
		same = true
		return nil
	})
	if err == nil && !same {
		err = errOther
	}
	if v.own {
		return &v.view, err
	}
	return old, err
}

// viewer makes a view of another.
type viewer struct {
	view

	own bool // its maps
}

// add takes a record that is newer than all before.
func (v *viewer) add(model string, s stamp, data []byte) {
	if !v.own {
		v.good, v.unreadable, v.own = maps.Clone(v.good), maps.Clone(v.unreadable), true
	}
	v.newest = s
	if !validModel(model) {
		return
	}
	if d := readDeployment(model, s.seq, s.at, data); d != nil {
		delete(v.unreadable, model)
		v.good[model] = record{deployment: d, last: s.seq}
		return
	}
	if c, ok := v.good[model]; ok && !isLater(data, deploymentFormat) {
		v.good[model] = record{deployment: c.deployment, last: s.seq}
		return
	}
	delete(v.good, model)
	v.unreadable[model] = s.seq
}

// toHeal are the models whose good record is to be written again, at most some: those
// that have waited longest.
func (v *view) toHeal(most int) []string {
	var all []string
	for model, c := range v.good {
		if c.hurt() && !c.tried {
			all = append(all, model)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(v.good[a].last, v.good[b].last) })
	return all[:min(len(all), most)]
}

// triedTo is the view when good records could not be written again.
func (v *view) triedTo(models []string) *view {
	n := *v
	n.good = maps.Clone(v.good)
	for _, model := range models {
		c := n.good[model]
		c.tried = true
		n.good[model] = c
	}
	return &n
}
