package sim

import (
	"errors"
	"fmt"
	"math/rand/v2"
)

// Shape is what a request's graph of cells looks like: a [Chain] or a [*Tree].
// Shapes are read-only and can be shared by requests and runs.
type Shape interface {
	// Nodes returns how many nodes the graph has.
	Nodes() int
	// validate checks the shape against the number of cells of a machine.
	validate(cells int) error
	// levels calls yield for each node with the longest path from a first node
	// to it, 0 for a first node.
	levels(yield func(level, cell int))
}

// Chain is a graph of stages that run one after the other.
type Chain []Stage

// Stage is a run of nodes of one cell, each waiting for the one before.
type Stage struct {
	// Cell is an index of the machine's cells.
	Cell int
	// Steps is the number of nodes, at least 1.
	Steps int
	// Emits says that each node emits a token.
	Emits bool
}

// Encoder and Decoder are the cells of a [Seq2Seq] chain.
const (
	Encoder = 0
	Decoder = 1
)

// Steps returns a chain of n nodes of the machine's first cell, such as a
// recurrent network that reads n tokens.
func Steps(n int) Chain { return Chain{{Steps: n}} }

// Seq2Seq returns a chain of source nodes of [Encoder] and target nodes of
// [Decoder], which emit.
func Seq2Seq(source, target int) Chain {
	return Chain{{Cell: Encoder, Steps: source}, {Cell: Decoder, Steps: target, Emits: true}}
}

// Nodes returns how many nodes the chain has.
func (c Chain) Nodes() int {
	n := 0
	for _, s := range c {
		n += s.Steps
	}
	return n
}

func (c Chain) validate(cells int) error {
	if len(c) == 0 {
		return errors.New("chain has no stages")
	}
	for i, s := range c {
		if s.Cell < 0 || s.Cell >= cells {
			return fmt.Errorf("stage %d is of cell %d, the machine has %d", i, s.Cell, cells)
		}
		if s.Steps < 1 {
			return fmt.Errorf("stage %d has %d steps, want 1 or more", i, s.Steps)
		}
	}
	return nil
}

func (c Chain) levels(yield func(level, cell int)) {
	level := 0
	for _, s := range c {
		for range s.Steps {
			yield(level, s.Cell)
			level++
		}
	}
}

// Leaf and Inner are the cells of a [Tree].
const (
	Leaf  = 0
	Inner = 1
)

// Tree is a binary tree whose leaves are nodes of [Leaf] and whose inner nodes,
// each waiting for its two children, of [Inner].
type Tree struct {
	leaves  int
	parents []int32 // by node, leaves first and children before parents; -1 at the root
}

// NewTree returns a random binary tree: neighbours are joined two at a time in
// an order that random decides. It panics without a leaf.
func NewTree(leaves int, random *rand.Rand) *Tree {
	if leaves < 1 {
		panic(fmt.Sprintf("sim: tree of %d leaves", leaves))
	}
	t := &Tree{leaves: leaves, parents: make([]int32, 2*leaves-1)}
	row := make([]int32, leaves)
	for i := range row {
		row[i] = int32(i)
	}
	for parent := leaves; len(row) > 1; parent++ {
		i := random.IntN(len(row) - 1)
		t.parents[row[i]], t.parents[row[i+1]] = int32(parent), int32(parent)
		row[i] = int32(parent)
		row = append(row[:i+1], row[i+2:]...)
	}
	t.parents[row[0]] = -1
	return t
}

// Nodes returns how many nodes the tree has.
func (t *Tree) Nodes() int { return len(t.parents) }

// Leaves returns how many leaves the tree has.
func (t *Tree) Leaves() int { return t.leaves }

// cell returns the cell of a node.
func (t *Tree) cell(node int) int {
	if node < t.leaves {
		return Leaf
	}
	return Inner
}

func (t *Tree) validate(cells int) error {
	if cells <= Inner {
		return fmt.Errorf("tree needs %d cells, the machine has %d", Inner+1, cells)
	}
	if t.leaves < 1 {
		return errors.New("tree has no leaves")
	}
	return nil
}

func (t *Tree) levels(yield func(level, cell int)) {
	heights := make([]int, len(t.parents))
	for node, parent := range t.parents {
		yield(heights[node], t.cell(node))
		if parent >= 0 {
			heights[parent] = max(heights[parent], heights[node]+1)
		}
	}
}
