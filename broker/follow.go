package broker

import "slices"

// follow gives every wanted model its queues and recalls those of the others. A
// queue whose model comes back before its subscription has ended goes on; others
// of the model may have left by then.
func (l *loop) follow() {
	models := l.intake.wanted()
	there := map[string]bool{} // by name of the consumer
	for _, q := range l.queues {
		there[q.name] = true
		q.leaving = !slices.Contains(models, q.model)
		if q.leaving {
			l.recall(q)
		}
	}
	l.forget()
	var added uint64
	for _, m := range models {
		for _, p := range priorities() {
			name := consumerName(m, p)
			if there[name] {
				continue
			}
			there[name] = true
			l.queues = append(l.queues, &queue{model: m, priority: p, name: name})
			added++
		}
	}
	if added > 0 && l.credits.Free() <= 0 {
		l.recallPolls(added) // polls of empty queues may have all credits
	}
}

// forget drops the queues that have left.
func (l *loop) forget() {
	l.queues = slices.DeleteFunc(l.queues, func(q *queue) bool { return q.leaving && q.sub == nil })
}
