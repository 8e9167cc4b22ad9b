package worker

import (
	"time"

	"github.com/cellmq/cellmq/broker"
)

// repeatEvery is the shortest time between two repetitions of one run: however
// often readers ask, they share them. A new connection does not wait for it.
const repeatEvery = 250 * time.Millisecond

// resume is the endpoint of resume requests: it has the publisher repeat the
// output of a request that runs here, on the request's own stream, in order with
// its other frames.
func (w *Worker) resume(client, id string, _ int, _ string) bool {
	runs := w.table.running(requestKey{client: client, id: id})
	for _, r := range runs {
		w.outbox.askRepeat(r)
	}
	return len(runs) > 0
}

// running returns the runs of a request.
func (t *table) running(key requestKey) []*run {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]*run(nil), t.byKey[key]...)
}

// askRepeat has the publisher repeat what it has sent of a run.
func (o *outbox) askRepeat(r *run) {
	o.mu.Lock()
	r.repeatAsked = true
	o.mark(r)
	o.mu.Unlock()
	o.signal()
}

// again repeats a run's output: all of it that is decoded. Without any, a
// heartbeat says that it runs.
func (p *publisher) again(r *run, now time.Time) {
	r.repeat, r.repeated, r.last = false, now, now
	if len(r.ids) == 0 {
		_ = r.stream.Heartbeat(r.phase()) // asked for again if it is missed
		return
	}
	p.frame = broker.Frame{Text: r.decoded.String(), Tokens: r.ids, LogProbs: p.candidatesOf(r.view[:len(r.ids)])}
	err := r.stream.Cumulative(&p.frame)
	r.repeat = err != nil
	p.gone(r, err, now)
}
