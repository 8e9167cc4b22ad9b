package registry

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
)

// encode returns the record with texts that can be read, once it is checked.
func (r *Report) encode() ([]byte, error) {
	r.Models = readable(r.Models)
	if err := r.check(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(r)
	if err == nil && len(b) > reportBytes {
		err = fmt.Errorf("%d bytes, at most %d wanted", len(b), reportBytes)
	}
	return b, err
}

// readable returns a copy with names and reasons that are printable and within their
// bounds.
func readable(all []ModelReport) []ModelReport {
	all = slices.Clone(all)
	for i := range all {
		m := &all[i]
		m.Versions = slices.Clone(m.Versions)
		for j := range m.Versions {
			v := &m.Versions[j]
			v.Reason = text(v.Reason, maxReason)
			if v.Ref != (Ref{}) {
				v.Version = cmp.Or(text(v.Version, maxTextBytes), "unknown")
			}
		}
	}
	return all
}

// Fit returns the report without the models at its end that have no room in a
// record, and how many these are in Omitted: whoever has more models than fit names
// the most important ones first, and is still there for others.
func (r Report) Fit() Report {
	all := readable(r.Models)
	r.Format, r.Models, r.Omitted = reportFormat, []ModelReport{}, r.Omitted+len(all)
	room := reportBytes
	if b, err := json.Marshal(r); err == nil {
		room -= len(b)
	}
	for _, m := range all[:min(len(all), maxModels)] {
		b, err := json.Marshal(m)
		if err != nil || len(b)+1 > room {
			break
		}
		room -= len(b) + 1
		r.Models = append(r.Models, m)
		r.Omitted--
	}
	return r
}

type (
	modelReports   []ModelReport
	versionReports []VersionReport
)

func (l *versionReports) UnmarshalJSON(b []byte) (err error) {
	*l, err = readList[VersionReport](b, maxVersions)
	return err
}

func (l *modelReports) UnmarshalJSON(b []byte) error {
	type plain struct {
		Model    string         `json:"model"`
		Serial   uint64         `json:"serial"`
		Versions versionReports `json:"versions"`
	}
	all, err := readList[plain](b, maxModels)
	for _, m := range all {
		*l = append(*l, ModelReport{Model: m.Model, Serial: m.Serial, Versions: m.Versions})
	}
	return err
}

// parseReport reads the report of a worker and checks all of it.
func parseReport(data []byte, worker string) (*Report, error) {
	type plain Report
	var record struct {
		plain
		Models modelReports `json:"models"`
	}
	if err := decode(data, reportBytes, &record); err != nil {
		return nil, err
	}
	r := Report(record.plain)
	r.Models = record.Models
	if r.Worker != worker {
		return nil, fmt.Errorf("worker: %.64q, %.64q wanted: %w", r.Worker, worker, ErrMalformed)
	}
	if err := r.check(); err != nil {
		return nil, err
	}
	return &r, nil
}

// check says which field is outside its bounds.
func (r *Report) check() error {
	err := r.checkFields()
	for i := 0; i < len(r.Models) && err == nil; i++ {
		err = r.Models[i].check()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", err, ErrMalformed)
	}
	return nil
}

func (r *Report) checkFields() error {
	switch {
	case r.Format != reportFormat:
		return fmt.Errorf("format: %d, %d wanted", r.Format, reportFormat)
	case !validWorker(r.Worker):
		return fmt.Errorf("worker: %.64q, 1 to %d of A-Z, a-z, 0-9, _ and - wanted", r.Worker, maxWorker)
	case r.MemoryBytes < 0 || r.BudgetBytes < 0 || r.Omitted < 0:
		return fmt.Errorf("memory_bytes, budget_bytes, omitted: %d, %d, %d, not negative wanted", r.MemoryBytes, r.BudgetBytes, r.Omitted)
	case len(r.Models) > maxModels:
		return fmt.Errorf("models: %d, at most %d wanted", len(r.Models), maxModels)
	}
	return nil
}

func (m *ModelReport) check() error {
	if !validModel(m.Model) || len(m.Versions) > maxVersions {
		return fmt.Errorf("models: %.64q with %d versions, at most %d wanted", m.Model, len(m.Versions), maxVersions)
	}
	for i := range m.Versions {
		v := &m.Versions[i]
		switch {
		case !validRef(v.Ref):
			return fmt.Errorf("version of %s: %.64q, %.64q, both or none wanted", m.Model, v.Version, v.Digest)
		case !printable(v.State, maxStateLength) || !printable(v.Weights, maxTextBytes) || !printable(v.Reason, maxReason):
			return fmt.Errorf("version of %s: state, weights, reason: at most %d, %d, %d bytes of printable text wanted",
				m.Model, maxStateLength, maxTextBytes, maxReason)
		case min(v.LoadMillis, v.WeightBytes, v.SharedBytes, v.StateBytes) < 0 || min(v.Golden, v.GoldenEqual, v.Running) < 0:
			return fmt.Errorf("version of %s: a negative number", m.Model)
		}
	}
	return nil
}
