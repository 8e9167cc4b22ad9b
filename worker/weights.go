package worker

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
)

// wantedWeights is what the operator says of weight types.
type wantedWeights struct {
	all    *cellrt.Weights // nil: each model's own
	byName map[string]cellrt.Weights
}

// parseWeights reads entries that are a weight type, for every model, or
// model=type. Its error says what is wrong with which entry and what is
// allowed.
func parseWeights(entries []string) (wantedWeights, error) {
	wanted := wantedWeights{byName: map[string]cellrt.Weights{}}
	for _, entry := range entries {
		name, text, named := strings.Cut(entry, "=")
		if !named {
			name, text = "", entry
		}
		w, err := cellrt.ParseWeights(text)
		if err != nil || named && !modelPattern.MatchString(name) {
			return wanted, fmt.Errorf("has %.100q: an entry must be f32, bf16 or int8, or a model's name, = and one of them", entry)
		}
		if _, again := wanted.byName[name]; again || !named && wanted.all != nil {
			return wanted, fmt.Errorf("has %.100q: must not have two entries for the same", entry)
		}
		if named {
			wanted.byName[name] = w
		} else {
			wanted.all = &w
		}
	}
	return wanted, nil
}

// weigh gives each model the weight type that the operator chose: for its name,
// else for all, else it keeps its own. A chosen name must be one of known.
func weigh(found []*models.Model, known []string, entries []string) ([]*models.Model, error) {
	wanted, err := parseWeights(entries)
	if err != nil {
		return nil, fmt.Errorf("%s_WEIGHTS %w", EnvPrefix, err)
	}
	for _, name := range slices.Sorted(maps.Keys(wanted.byName)) {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%w: %s_WEIGHTS names %s, which is none of %s", ErrModel, EnvPrefix, name, strings.Join(known, ", "))
		}
	}
	out := slices.Clone(found)
	for i, m := range found {
		out[i] = wanted.weigh(m)
	}
	return out, nil
}

// weigh gives a model the weight type that the operator chose.
func (wanted wantedWeights) weigh(m *models.Model) *models.Model {
	if w, ok := wanted.byName[m.Name()]; ok {
		return m.WithWeights(w)
	}
	if wanted.all != nil {
		return m.WithWeights(*wanted.all)
	}
	return m
}
