package decode

import "math"

// sampler draws tokens. It belongs to one request.
type sampler struct {
	Sampling
	sharpness float64   // 1 / temperature
	shares    []float64 // room for every token's share of the whole distribution
	heap      heap      // room for the tokens that may be kept
	kept      []weighed // room for what top_k leaves
}

// weighed is a token with its share before renormalisation.
type weighed struct {
	id     int32
	weight float64
}

func newSampler(s Sampling, vocab int) *sampler {
	d := &sampler{Sampling: s, sharpness: min(1/s.Temperature, math.MaxFloat64)}
	if d.TopK <= 0 || d.TopK > vocab {
		d.TopK = vocab
	}
	if d.TopP <= 0 {
		d.TopP = 1
	}
	if d.TopK == vocab {
		d.shares = make([]float64, vocab)
	}
	if d.TopK < vocab || d.TopP < 1 {
		d.heap = make(heap, 0, vocab)
		d.kept = make([]weighed, 0, d.TopK)
	}
	return d
}

// choose returns the token that step draws. The logits are finite.
func (d *sampler) choose(logits []float32, step uint64) int32 {
	u := uniform(d.Seed, step)
	switch {
	case d.TopK < len(logits):
		return d.pick(float64(u * d.keepTopK(logits)))
	case d.TopP < 1:
		return d.pick(float64(u * d.keepTopP(logits)))
	default:
		return d.draw(float64(u * d.share(logits)))
	}
}

// weight returns a token's share relative to that of the most probable.
func (d *sampler) weight(x, largest float32) float64 {
	return Exp(float64((float64(x) - float64(largest)) * d.sharpness))
}

// share computes the shares of all tokens and returns their sum. It is [Exp]
// without a call for each token: the largest part of a choice.
func (d *sampler) share(logits []float32) float64 {
	largest := logits[0]
	for _, x := range logits {
		if x > largest { // the function max also looks for NaN and -0
			largest = x
		}
	}
	shares, mass := d.shares[:len(logits)], 0.0
	for i, x := range logits {
		shares[i] = 0
		if y := float64((float64(x) - float64(largest)) * d.sharpness); y >= leastExp {
			r, power := reduce(y)
			shares[i] = float64(series(r) * power)
			mass += shares[i]
		}
	}
	return mass
}

// keepTopP keeps the most probable tokens that reach top_p of the whole
// distribution, without putting all in order, and returns their mass.
//
// Tokens with less than an equal part of what top_p leaves out do not reach it
// all together, so none of them is kept. They are not looked at; half of that
// part is the bound, because sums are rounded.
func (d *sampler) keepTopP(logits []float32) float64 {
	all := d.share(logits)
	enough := float64(d.TopP * all)
	least := (1 - d.TopP) * all / float64(2*len(logits))
	h := d.heap[:0]
	for i, share := range d.shares {
		if share >= least {
			h = append(h, candidate{id: int32(i), value: logits[i]})
		}
	}
	h.build()
	d.kept = d.kept[:0]
	mass := 0.0
	for len(h) > 0 && mass < enough {
		var c candidate
		c, h = h.pop()
		d.kept = append(d.kept, weighed{id: c.id, weight: d.shares[c.id]})
		mass += d.shares[c.id]
	}
	return mass
}

// keepTopK keeps the top_k most probable tokens, and of those the ones that
// reach top_p of their mass, and returns what mass is left.
func (d *sampler) keepTopK(logits []float32) float64 {
	h := d.heap.best(logits, d.TopK)
	largest := h[0].value
	d.kept = d.kept[:0]
	mass := 0.0
	for _, c := range h {
		w := d.weight(c.value, largest)
		d.kept = append(d.kept, weighed{id: c.id, weight: w})
		mass += w
	}
	enough, sum := float64(d.TopP*mass), 0.0
	for i, k := range d.kept {
		if sum += k.weight; sum >= enough {
			d.kept = d.kept[:i+1]
			break
		}
	}
	return sum
}

// pick returns the kept token in whose share a place in their mass lies.
func (d *sampler) pick(place float64) int32 {
	sum := 0.0
	for _, k := range d.kept {
		if sum += k.weight; place < sum {
			return k.id
		}
	}
	return d.kept[0].id // rounding put the place at the very end
}

// draw returns the token in whose share a place in the mass of all lies, in the
// order of the ids.
func (d *sampler) draw(place float64) int32 {
	sum := 0.0
	for i, w := range d.shares {
		if sum += w; place < sum {
			return int32(i)
		}
	}
	// Rounding put the place at the very end.
	largest := 0
	for i, w := range d.shares {
		if w > d.shares[largest] {
			largest = i
		}
	}
	return int32(largest)
}
