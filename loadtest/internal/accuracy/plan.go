package accuracy

import (
	"errors"
	"fmt"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models"
)

// plan is what a model runs for a text: the nodes up to its first output token,
// and those of each further one.
type plan struct {
	begin []cellrt.Node
	turn  []cellrt.Node
	token cellrt.Arg // argument of turn[0] that is the token before
}

// newPlan runs a request's graph by hand, without computing anything, as if
// the model chose the given token twice.
func newPlan(req *models.Request, token int32) (plan, error) {
	var (
		p       plan
		f       cellrt.Frontier
		ready   []cellrt.Node
		emitted int
	)
	for req.Graph.Start(&f); emitted < 2; {
		if reason, err := f.Done(); reason != 0 || err != nil {
			return p, fmt.Errorf("the graph ended after %d tokens: %w", emitted, errors.Join(err, errShort))
		}
		ready = append(ready, f.Nodes()...)
		if len(ready) == 0 {
			return p, cellrt.ErrStalled
		}
		n := ready[0]
		ready = ready[1:]
		if emitted == 0 {
			p.begin = append(p.begin, n)
		} else {
			p.turn = append(p.turn, n)
		}
		f.Reset()
		req.Graph.Advance(n, cellrt.Output{Token: token}, &f)
		emitted += len(f.Tokens())
	}
	for _, op := range p.turn[0].Cell.Ops() {
		if embed, ok := op.(cellrt.Embed); ok {
			p.token = embed.ID
			return p, nil
		}
	}
	return p, fmt.Errorf("cell %s reads no token", p.turn[0].Cell.Name)
}

var errShort = errors.New("at least two tokens wanted")

// place is where a vector lies in a slot.
type place struct{ from, width int }

// hidden returns where the turn stores the states h.
func (p plan) hidden(l *cellrt.Layout) []place {
	var places []place
	for _, n := range p.turn {
		h := map[cellrt.Value]bool{}
		for _, op := range n.Cell.Ops() {
			switch op := op.(type) {
			case cellrt.LSTM:
				h[op.OutH] = true
			case cellrt.GRU:
				h[op.OutH] = true
			case cellrt.Store:
				if h[op.In] {
					entry := 0
					if op.Index != cellrt.Zero {
						entry = int(n.Args[op.Index])
					}
					width := l.Field(op.Field).Width
					places = append(places, place{from: l.Offset(op.Field) + entry*width + op.Column, width: n.Cell.Width(op.In)})
				}
			}
		}
	}
	return places
}
