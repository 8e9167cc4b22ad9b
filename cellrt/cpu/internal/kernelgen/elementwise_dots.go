package main

import (
	"fmt"
	"strconv"
)

// dotGroup is a group of entries whose dot products run side by side.
type dotGroup struct {
	*routine

	rows []string // operands of the entries' next elements
	sums []string // of each entry and part
	x    []string // the query's parts
	y    string   // holds nothing
}

// load writes the load of a part of 16 elements, which the masks cover if there
// are any.
func (g dotGroup) load(part int, address, reg string, masks []string) {
	switch {
	case masks == nil:
		g.ins("VMOVUPS %s, %s", address, reg)
	case g.bytes == 64:
		g.ins("VMOVUPS.Z %s, %s, %s", address, masks[part], reg)
	default:
		g.ins("VMASKMOVPS %s, %s, %s", address, masks[part], reg)
	}
}

// step writes the multiply-adds of 16 elements.
func (g dotGroup) step(masks []string) {
	for p, x := range g.x {
		g.load(p, at(p*g.bytes, "SI"), x, masks)
	}
	for e, row := range g.rows {
		for p, x := range g.x {
			address := row
			if p > 0 {
				address = strconv.Itoa(p*g.bytes) + row
			}
			if masks != nil {
				g.load(p, address, g.y, masks)
				address = g.y
			}
			g.ins("VFMADD231PS %s, %s, %s", address, x, g.sums[e*len(g.x)+p])
		}
	}
}

// emitDots writes the dot products of a query with the entries of memory, four
// entries at a time. R8 counts the entries, CX the elements.
func emitDots(u *unit, i isa) {
	r := u.routine(i, "dots", "dots"+i.name+" sets each score to the dot product of the query and an entry of\nmemory, a sum in lanes. The query is not empty.",
		[]param{{"query", "[]float32"}, {"memory", "[]float32"}, {"scores", "[]float32"}}, nil)
	r.ins("MOVQ %s, DI", r.arg("memory"))
	r.ins("MOVQ %s, R9", r.arg("scores"))
	r.ins("MOVQ %s, R8", r.arg("len scores"))
	r.ins("MOVQ %s, DX", r.arg("len query"))
	r.ins("SHLQ $2, DX")
	r.ins("LEAQ (DX)(DX*2), R12")
	var masks []string
	r.ins("MOVQ %s, CX", r.arg("len query"))
	r.ins("ANDQ $%d, CX", sumLanes-1)
	if i.parts() == 2 {
		second := r.take()
		r.setMask(second)
		masks = []string{r.mask, second}
	} else {
		r.setMask()
		masks = []string{r.mask}
	}
	r.mask = ""
	for _, entries := range []int{4, 1} {
		r.dotEntries(entries, masks)
	}
	r.label("done")
	r.ret()
}

// dotEntries writes the loop over groups of entries. The last one falls
// through to what comes next.
func (r *routine) dotEntries(entries int, masks []string) {
	label := func(name string) string { return fmt.Sprintf("%s%d", name, entries) }
	next := "done"
	if entries == 4 {
		next = "entries1"
	}
	rows := []string{"(DI)", "(DI)(DX*1)", "(DI)(DX*2)", "(DI)(R12*1)"}[:entries]
	parts := r.parts()
	sums := r.takeAll(entries * parts)
	x := r.takeAll(parts)
	y := r.take()

	r.label(label("entries"))
	r.ins("CMPQ R8, $%d", entries)
	r.ins("JLT %s", next)
	r.ins("MOVQ %s, SI", r.arg("query"))
	r.ins("MOVQ %s, CX", r.arg("len query"))
	for _, s := range sums {
		r.zero(s)
	}
	g := dotGroup{routine: r, rows: rows, sums: sums, x: x, y: y}
	r.label(label("elements"))
	r.ins("CMPQ CX, $%d", sumLanes)
	r.ins("JLT %s", label("rest"))
	g.step(nil)
	r.ins("ADDQ $%d, SI", 4*sumLanes)
	r.ins("ADDQ $%d, DI", 4*sumLanes)
	r.ins("SUBQ $%d, CX", sumLanes)
	r.ins("JMP %s", label("elements"))
	r.label(label("rest"))
	r.ins("TESTQ CX, CX")
	r.ins("JEQ %s", label("sums"))
	g.step(masks)
	r.label(label("sums"))
	r.ins("LEAQ (DI)(CX*4), DI")
	for e := range entries {
		r.addLanes(sums[e*parts:(e+1)*parts], y)
		r.ins("VMOVSS %s, %s", xmm(sums[e*parts]), at(4*e, "R9"))
	}
	// DI has passed one entry.
	if entries == 4 {
		r.ins("ADDQ R12, DI")
	}
	r.ins("ADDQ $%d, R9", 4*entries)
	r.ins("SUBQ $%d, R8", entries)
	r.ins("JMP %s", label("entries"))
	r.give(sums...)
	r.give(x...)
	r.give(y)
}
