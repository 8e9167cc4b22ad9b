package cellrt_test

import (
	"context"
	"fmt"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
)

// countdown is a graph that feeds each token back until it is 0.
type countdown struct {
	cell *cellrt.Cell
	from int32
}

func (g *countdown) Start(f *cellrt.Frontier) {
	f.Push(cellrt.Node{Cell: g.cell, Args: [cellrt.MaxArgs]int32{g.from}})
}

func (g *countdown) Advance(_ cellrt.Node, out cellrt.Output, f *cellrt.Frontier) {
	f.Emit(cellrt.Token{ID: out.Token, LogProb: out.LogProb})
	if out.Token == 0 {
		f.Finish(cellrt.Stopped)
		return
	}
	f.Push(cellrt.Node{Cell: g.cell, Args: [cellrt.MaxArgs]int32{out.Token}})
}

// collector gathers each sequence's tokens under its owner, a name.
type collector struct {
	tokens map[string][]int32
	left   int // sequences that have not ended
	done   func()
}

func (c *collector) Deliver(results []cellrt.Result) {
	for _, r := range results {
		name := r.Sequence.Owner().(string)
		for _, t := range r.Tokens {
			c.tokens[name] = append(c.tokens[name], t.ID)
		}
		if r.Done {
			if c.left--; c.left == 0 {
				c.done()
			}
		}
	}
}

// A model of one cell, whose table says which token follows which, and two
// requests of different lengths that share its batches.
func Example() {
	layout := &cellrt.Layout{}
	layout.Add("none", 1, 1) // this cell keeps no state
	follows := &cellrt.Matrix{Name: "follows", Rows: 4, Cols: 4, Data: []float32{
		9, 0, 0, 0,
		9, 0, 0, 0, // after 1 comes 0
		0, 9, 0, 0,
		0, 0, 9, 0,
	}}
	b := cellrt.NewCell("next", layout, 1)
	b.Greedy(b.Embed(follows, 0))
	cell, err := b.Build()
	if err != nil {
		fmt.Println(err)
		return
	}
	program, err := cellrt.NewProgram("countdown", layout, cell)
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, cancel := context.WithCancel(context.Background())
	sink := &collector{tokens: map[string][]int32{}, left: 2, done: cancel}
	runtime, err := cellrt.New(cellrt.Config{}, cpu.New(cpu.Config{}), sink)
	if err != nil {
		fmt.Println(err)
		return
	}
	model, err := runtime.Load(program, 16)
	if err != nil {
		fmt.Println(err)
		return
	}
	for name, from := range map[string]int32{"long": 3, "short": 2} {
		if err := runtime.Submit(cellrt.NewSequence(model, &countdown{cell: cell, from: from}, cellrt.SequenceOptions{Owner: name})); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := runtime.Run(ctx); err != nil {
		fmt.Println(err)
		return
	}
	stats := runtime.Stats()
	fmt.Println("long:", sink.tokens["long"])
	fmt.Println("short:", sink.tokens["short"])
	fmt.Println(stats.Tokens, "tokens in", stats.Steps, "steps")
	// Output:
	// long: [2 1 0]
	// short: [1 0]
	// 5 tokens in 3 steps
}
