package registry

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The bounds of a deployment.
const (
	deploymentFormat = 1
	maxRefused       = 8
	maxPast          = 8
	maxBaseline      = 64 // workers
	maxReason        = 512
	maxBy            = 64
	maxHold          = 7 * 24 * time.Hour
	maxWatch         = time.Hour
)

// Whole is the share of a version that serves everything, in hundredths of a
// percent.
const Whole = 10_000

// Lead is how long after it is stored a record's rule takes effect. Whoever reads
// records each second knows a rule before it holds.
const Lead = 3 * time.Second

// DefaultWatch is how long a new version is watched unless an operator says
// otherwise.
const DefaultWatch = time.Minute

// Ref names a version of a model. The zero Ref is what each worker has of its own,
// of the zoo or of a local directory, or nothing.
type Ref struct {
	// Version is for people.
	Version string `json:"version,omitempty"`
	// Digest of the manifest. It alone says whether two are the same.
	Digest string `json:"digest,omitempty"`
}

func (r Ref) same(o Ref) bool { return r.Digest == o.Digest }

// name is how reasons name a version.
func (r Ref) name() string {
	if r == (Ref{}) {
		return "each worker's own"
	}
	return fmt.Sprintf("%.64s (%.12s)", r.Version, r.Digest)
}

// Phase is where a deployment is.
//
//	steady ── Begin ──> loading ── all have Next ──> canary ── Promote, or Hold is over ──> watching ── Watch is over ──> steady
//	                       └── or at once, without a canary ───────────────────────────────────^
//
// A worker that cannot load the new version, too many errors and Rollback lead from
// each phase back to steady with the old one, and the new one is refused. Undeploy
// leads from each to steady without any.
type Phase string

// The phases.
const (
	// Steady: Active serves, nothing is under way.
	Steady Phase = "steady"
	// Loading: Active serves, workers load Next.
	Loading Phase = "loading"
	// Canary: Next serves its Share, Active the rest.
	Canary Phase = "canary"
	// Watching: Active serves, and is judged beside Previous, which stays loaded.
	Watching Phase = "watching"
)

// Duration is a time.Duration that is written as 1m0s.
type Duration time.Duration

// MarshalText writes it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads it.
func (d *Duration) UnmarshalText(b []byte) error {
	if len(b) > 32 {
		return fmt.Errorf("duration of %d bytes, at most 32 wanted", len(b))
	}
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// Deployment is what shall be served of a model. Nobody changes one: the methods
// return what to write instead, and leave it to [Registry.Write] whether that is
// still wanted.
type Deployment struct {
	// Format of this record, 1.
	Format int `json:"format"`
	// Model is its name.
	Model string `json:"model"`
	// Serial counts what operators began.
	Serial uint64 `json:"serial"`
	// Phase says which of the fields below have a meaning.
	Phase Phase `json:"phase"`
	// Active serves all that Next does not.
	Active Ref `json:"active,omitzero"`
	// Next is loaded, and then serves its share. Zero unless loading or canary.
	Next Ref `json:"next,omitzero"`
	// Previous was Active before. The same as Active: there is none.
	Previous Ref `json:"previous,omitzero"`
	// Deleting is a version that is being deleted, and cannot be begun with.
	Deleting Ref `json:"deleting,omitzero"`
	// Share of Next in hundredths of a percent, in a canary.
	Share int `json:"share,omitempty"`
	// Canary is the share that loading ends with; [Whole]: there is no canary.
	Canary int `json:"canary,omitempty"`
	// Hold is how long a canary lasts. 0: until an operator promotes it.
	Hold Duration `json:"hold,omitempty"`
	// Watch is how long a new Active is watched.
	Watch Duration `json:"watch,omitempty"`
	// Pinned: nothing begins, nothing is deleted or evicted.
	Pinned bool `json:"pinned,omitempty"`
	// Refused were rolled back and serve nothing, newest first.
	Refused []Ref `json:"refused,omitempty"`
	// Reason of the last refusal since the last beginning.
	Reason string `json:"reason,omitempty"`
	// By is who wrote the record.
	By string `json:"by,omitempty"`
	// Since is when the record's rule took effect. Zero: [Lead] after Stored.
	Since time.Time `json:"since,omitzero"`
	// Past rules, newest first.
	Past []Rule `json:"past,omitempty"`
	// Baseline is what workers had counted when loading ended, by worker.
	Baseline []Base `json:"baseline,omitempty"`

	// Revision of the record in its bucket, 0 for none. [Registry.Write] replaces
	// it and no other.
	Revision uint64 `json:"-"`
	// Stored is when, by the server's clock. Zero in what was not read from there.
	Stored time.Time `json:"-"`
}

// Undeployed is the deployment of a model without a record.
func Undeployed(model string) *Deployment {
	return &Deployment{Format: deploymentFormat, Model: model, Phase: Steady, Since: time.Unix(0, 0).UTC()}
}

// Wanted are the versions that workers keep loaded, at most two.
func (d *Deployment) Wanted() []Ref {
	switch d.Phase {
	case Loading, Canary:
		return []Ref{d.Active, d.Next}
	case Watching:
		return []Ref{d.Active, d.Previous}
	}
	return []Ref{d.Active}
}

// Refuses says whether a version was rolled back. It serves no request that has
// not begun, whatever the rule of its time says.
func (d *Deployment) Refuses(r Ref) bool { return r != Ref{} && slices.ContainsFunc(d.Refused, r.same) }

// change returns an edited copy. A rule that is another then is a new one, and the
// old one has passed; one that is the same goes on since when it held.
func (d *Deployment) change(by string, edit func(n *Deployment)) *Deployment {
	n := *d
	n.Refused, n.Past, n.Baseline = slices.Clone(d.Refused), slices.Clone(d.Past), slices.Clone(d.Baseline)
	n.By, n.Since = text(by, maxBy), d.since()
	edit(&n)
	if old := d.Rule(); !n.Rule().same(old) {
		n.Past = slices.Insert(n.Past, 0, old)
		n.Past = n.Past[:min(len(n.Past), maxPast)]
		n.Since = time.Time{}
	}
	n.Stored = time.Time{}
	return &n
}

// over is a copy that is to be written over another record of the model.
func (d *Deployment) over(revision uint64) *Deployment {
	n := d.change(d.By, func(*Deployment) {})
	n.Revision = revision
	return n
}

// text makes s printable and at most n bytes.
func text(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
	for len(s) > n {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}
