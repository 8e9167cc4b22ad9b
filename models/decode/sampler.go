package decode

// sampler draws tokens. It belongs to one request.
type sampler struct {
	Sampling
	heap heap      // room for the vocabulary
	kept []weighed // room for what top_k leaves
}

// weighed is a token with its share before renormalisation.
type weighed struct {
	id     int32
	weight float64
}

func newSampler(s Sampling, vocab int) *sampler {
	d := &sampler{Sampling: s}
	if d.TopK <= 0 || d.TopK > vocab {
		d.TopK = vocab
	}
	if d.TopP <= 0 {
		d.TopP = 1
	}
	if d.ranked(vocab) {
		d.heap = make(heap, 0, vocab)
		d.kept = make([]weighed, 0, d.TopK)
	}
	return d
}

// ranked says whether the order of the tokens matters.
func (d *sampler) ranked(vocab int) bool { return d.TopK < vocab || d.TopP < 1 }

// choose returns the token that step draws. The logits are finite.
func (d *sampler) choose(logits []float32, step uint64) int32 {
	u := uniform(d.Seed, step)
	if !d.ranked(len(logits)) {
		return d.draw(logits, u)
	}
	h := d.heap.fill(logits)
	largest := h[0].value
	d.kept = d.kept[:0]
	total := 0.0
	if d.TopK == len(logits) { // the mass of all, without putting all in order
		for _, x := range logits {
			total += d.weight(x, largest)
		}
	}
	mass := 0.0
	for len(d.kept) < d.TopK {
		var c candidate
		c, h = h.pop()
		w := d.weight(c.value, largest)
		d.kept = append(d.kept, weighed{id: c.id, weight: w})
		if mass += w; total > 0 && mass >= float64(d.TopP*total) {
			break
		}
	}
	if total == 0 {
		mass = d.cut(mass)
	}
	return d.pick(float64(u * mass))
}

// weight returns a token's share relative to that of the most probable.
func (d *sampler) weight(x, largest float32) float64 {
	return exp((float64(x) - float64(largest)) / d.Temperature)
}

// cut shortens the tokens that top_k left, whose mass is given, to those that
// top_p leaves, and returns their mass.
func (d *sampler) cut(mass float64) float64 {
	sum := 0.0
	for i, k := range d.kept {
		if sum += k.weight; sum >= float64(d.TopP*mass) {
			d.kept = d.kept[:i+1]
			break
		}
	}
	return sum
}

// pick returns the token in whose share a place in the mass lies.
func (d *sampler) pick(place float64) int32 {
	sum := 0.0
	for _, k := range d.kept {
		if sum += k.weight; place < sum {
			return k.id
		}
	}
	return d.kept[0].id // rounding put the place at the very end
}

// draw picks from the whole distribution, in the order of the ids.
func (d *sampler) draw(logits []float32, u float64) int32 {
	largest, at := logits[0], 0
	for i, x := range logits {
		if x > largest {
			largest, at = x, i
		}
	}
	mass := 0.0
	for _, x := range logits {
		mass += d.weight(x, largest)
	}
	place, sum := float64(u*mass), 0.0
	for i, x := range logits {
		if sum += d.weight(x, largest); place < sum {
			return int32(i)
		}
	}
	return int32(at)
}
