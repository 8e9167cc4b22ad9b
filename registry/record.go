package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// deploymentBytes bounds a deployment's record. With everything at its bound it has
// less than 32 KiB.
const deploymentBytes = 64 << 10

// readList reads a list and stops at one too many, so that a record cannot make a
// list that is much larger than itself.
func readList[T any](b []byte, most int) ([]T, error) {
	if string(b) == "null" {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if start, err := d.Token(); err != nil || start != json.Delim('[') {
		return nil, errors.New("a list wanted")
	}
	var all []T
	for d.More() {
		if len(all) == most {
			return nil, fmt.Errorf("a list of more than %d", most)
		}
		var one T
		if err := d.Decode(&one); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

type (
	refusedList  []Ref
	pastList     []Rule
	baselineList []Base
)

func (l *refusedList) UnmarshalJSON(b []byte) (err error) {
	*l, err = readList[Ref](b, maxRefused)
	return err
}

func (l *pastList) UnmarshalJSON(b []byte) (err error) {
	*l, err = readList[Rule](b, maxPast)
	return err
}

func (l *baselineList) UnmarshalJSON(b []byte) (err error) {
	*l, err = readList[Base](b, maxBaseline)
	return err
}

// parseDeployment reads the record that a key names and checks all of it.
func parseDeployment(data []byte, model string) (*Deployment, error) {
	type plain Deployment
	var record struct {
		plain
		Refused  refusedList  `json:"refused"`
		Past     pastList     `json:"past"`
		Baseline baselineList `json:"baseline"`
	}
	if err := decode(data, deploymentBytes, &record); err != nil {
		return nil, err
	}
	d := Deployment(record.plain)
	d.Refused, d.Past, d.Baseline = record.Refused, record.Past, record.Baseline
	if d.Model != model {
		return nil, fmt.Errorf("model: %.64q, %.64q wanted: %w", d.Model, model, ErrMalformed)
	}
	if err := d.check(); err != nil {
		return nil, err
	}
	return &d, nil
}

// encode returns the record, once it is checked.
func (d *Deployment) encode() ([]byte, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(d)
	if err == nil && len(b) > deploymentBytes {
		err = fmt.Errorf("%d bytes, at most %d wanted: %w", len(b), deploymentBytes, ErrMalformed)
	}
	return b, err
}

// check says which field is outside its bounds.
func (d *Deployment) check() error {
	for _, check := range []func() error{d.checkFields, d.checkVersions, d.checkLists} {
		if err := check(); err != nil {
			return fmt.Errorf("%w: %w", err, ErrMalformed)
		}
	}
	return nil
}

func (d *Deployment) checkFields() error {
	switch {
	case d.Format != deploymentFormat:
		return fmt.Errorf("format: %d, %d wanted", d.Format, deploymentFormat)
	case !validModel(d.Model):
		return fmt.Errorf("model: %.64q, 1 to %d of a-z, 0-9 and - wanted", d.Model, maxModelName)
	case d.Share < 0 || d.Share > Whole || d.Canary < 0 || d.Canary > Whole:
		return fmt.Errorf("share, canary: %d, %d, 0 to %d wanted", d.Share, d.Canary, Whole)
	case d.Hold < 0 || d.Hold > Duration(maxHold):
		return fmt.Errorf("hold: %v, 0 to %v wanted", time.Duration(d.Hold), maxHold)
	case d.Watch < 0 || d.Watch > Duration(maxWatch):
		return fmt.Errorf("watch: %v, 0 to %v wanted", time.Duration(d.Watch), maxWatch)
	case !printable(d.Reason, maxReason) || !printable(d.By, maxBy):
		return fmt.Errorf("reason, by: at most %d and %d bytes of printable text wanted", maxReason, maxBy)
	}
	return nil
}

func (d *Deployment) checkVersions() error {
	for _, r := range []Ref{d.Active, d.Next, d.Previous, d.Deleting} {
		if !validRef(r) {
			return fmt.Errorf("version: %.64q, %.64q, both or none wanted", r.Version, r.Digest)
		}
	}
	next := d.Next != Ref{}
	switch d.Phase {
	case Steady, Watching:
		if next || d.Share != 0 {
			return fmt.Errorf("next: one when %s", d.Phase)
		}
	case Loading, Canary:
		if !next || d.Phase == Loading && d.Share != 0 {
			return fmt.Errorf("next: none, or with a share, when %s", d.Phase)
		}
	default:
		return fmt.Errorf("phase: %.64q", string(d.Phase))
	}
	switch {
	case d.Next.same(d.Active) && next, d.Phase == Watching && d.Previous.same(d.Active):
		return fmt.Errorf("version: %.64q twice when %s", d.Active.Version, d.Phase)
	case d.Refuses(d.Active) || d.Refuses(d.Next):
		return errors.New("version: a refused one serves")
	case d.Deleting != Ref{} && slices.ContainsFunc([]Ref{d.Active, d.Next, d.Previous}, d.Deleting.same):
		return errors.New("deleting: a version that serves or is kept")
	}
	return nil
}

func (d *Deployment) checkLists() error {
	if len(d.Refused) > maxRefused || len(d.Past) > maxPast || len(d.Baseline) > maxBaseline {
		return fmt.Errorf("refused, past, baseline: %d, %d, %d, at most %d, %d, %d wanted",
			len(d.Refused), len(d.Past), len(d.Baseline), maxRefused, maxPast, maxBaseline)
	}
	for _, r := range d.Refused {
		if !validRef(r) || r == (Ref{}) {
			return fmt.Errorf("refused: %.64q, %.64q is no version", r.Version, r.Digest)
		}
	}
	for _, r := range d.Past {
		if !validRef(r.Active) || !validRef(r.Next) || r.Share < 0 || r.Share > Whole || r.From.IsZero() {
			return fmt.Errorf("past: no rule from %v, share %d", r.From, r.Share)
		}
	}
	for _, b := range d.Baseline {
		if !validWorker(b.Worker) {
			return fmt.Errorf("baseline: worker %.64q, 1 to %d of A-Z, a-z, 0-9, _ and - wanted", b.Worker, maxWorker)
		}
	}
	return nil
}

// validRef says whether a Ref is one of a version, or zero.
func validRef(r Ref) bool {
	return r == Ref{} || r.Version != "" && printable(r.Version, maxTextBytes) && validSum(r.Digest)
}

func validWorker(s string) bool {
	outside := func(r rune) bool {
		return r != '-' && r != '_' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
	}
	return s != "" && len(s) <= maxWorker && !strings.ContainsFunc(s, outside)
}
