package cellrt

// Bytes returns what the model's packed weights and its arena take, in bytes; 0
// for a model without a backend. Weights that it shares with other models count
// in each of them: see [Footprint].
func (m *Model) Bytes() (weights, state int64) {
	if m.executable == nil {
		return 0, 0
	}
	return m.executable.WeightBytes(), m.executable.StateBytes()
}

// Footprint returns what the weights and arenas of models take together, in
// bytes: blocks of weights that several models share count once, and so does a
// model that is given twice. Runners' scratch memory is not in it.
func Footprint(models ...*Model) int64 {
	var total int64
	seen := map[any]bool{}
	first := func(id any) bool {
		known := seen[id]
		seen[id] = true
		return !known
	}
	for _, m := range models {
		if m.executable == nil || !first(m) {
			continue
		}
		for id, bytes := range m.executable.Blocks {
			if first(id) {
				total += bytes
			}
		}
		total += m.executable.StateBytes()
	}
	return total
}
