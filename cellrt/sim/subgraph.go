package sim

// subgraph is the current stage of a request.
type subgraph struct {
	request  int32
	stages   Chain // those not completed; the first is released
	given    int   // nodes of the stage given to an executor
	done     int   // nodes of the stage completed
	executor int   // that it stays on while given > done

	prev, next *subgraph // in its cell's list
}

// free reports whether an executor can be given the next node now.
func (g *subgraph) free(executor int) bool {
	return g.given < g.stages[0].Steps && (g.given == g.done || g.executor == executor)
}

// subgraphs is a list of sub-graphs in the order of release.
type subgraphs struct{ head, tail *subgraph }

func (l *subgraphs) push(g *subgraph) {
	g.prev, g.next = l.tail, nil
	if l.tail != nil {
		l.tail.next = g
	} else {
		l.head = g
	}
	l.tail = g
}

func (l *subgraphs) remove(g *subgraph) {
	if g.prev != nil {
		g.prev.next = g.next
	} else {
		l.head = g.next
	}
	if g.next != nil {
		g.next.prev = g.prev
	} else {
		l.tail = g.prev
	}
	g.prev, g.next = nil, nil
}
