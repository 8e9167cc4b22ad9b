package cellrt

import "fmt"

// Close drops the values of the program's matrices, for whoever keeps a program
// after a runtime has loaded it: what is left is names and shapes, the layout
// and the biases. All programs that share the cells are closed with it (see
// [Program.WithWeights]). To load one afterwards is a programmer's error and
// panics. Close may be called again. It must not run beside [Runtime.Load].
func (p *Program) Close() {
	for _, m := range p.matrices() {
		m.Data = nil
	}
}

// wantOpen panics when the program is closed.
func (p *Program) wantOpen() {
	for _, m := range p.matrices() {
		if len(m.Data) == 0 {
			panic(fmt.Sprintf("cellrt: load of program %s, which is closed: matrix %s has no values", p.Name, m.Name))
		}
	}
}

// matrices returns the matrices of all cells. One that several operations share
// is there more than once.
func (p *Program) matrices() []*Matrix {
	var all []*Matrix
	for _, c := range p.Cells {
		for _, op := range c.ops {
			switch op := op.(type) {
			case Embed:
				all = append(all, op.Table)
			case Linear:
				all = append(all, op.Weight)
			case LSTM:
				all = append(all, op.Input, op.Recurrent)
			case GRU:
				all = append(all, op.Input, op.Recurrent)
			case TreeLeaf:
				all = append(all, op.Weight)
			case TreeNode:
				all = append(all, op.Weight)
			}
		}
	}
	return all
}
