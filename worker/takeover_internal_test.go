package worker

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
)

func storedRun(id string, stored time.Time, epoch, attempt uint64) *run {
	return &run{
		req:      &broker.Request{Client: "me", ID: id, Durable: true, Published: stored},
		delivery: &broker.Delivery{Lease: &broker.Lease{Epoch: epoch, Attempt: attempt}},
	}
}

func TestTakeoverNumbersItsLeases(t *testing.T) {
	t.Parallel()
	now, stored := time.Unix(2000, 0), time.Unix(1000, 5)
	for name, c := range map[string]struct{ epoch, attempt, wantEpoch, wantAttempt uint64 }{
		"later consumer":    {8, 1, 8, 1},
		"later delivery":    {7, 4, 7, 4},
		"same delivery":     {7, 3, 7, 4},
		"earlier delivery":  {7, 1, 7, 4},
		"earlier consumer?": {6, 9, 7, 4},
	} {
		var takeover takeovers
		first, second := storedRun("0123456789", stored, 7, 3), storedRun("0123456789", stored, c.epoch, c.attempt)
		if older, err := takeover.enter(first, 0, now); older != nil || err != nil {
			t.Fatalf("%s: the first one takes over: %v", name, err)
		}
		older, err := takeover.enter(second, 0, now)
		if l := second.delivery.Lease; older != first || err != nil || l.Epoch != c.wantEpoch || l.Attempt != c.wantAttempt {
			t.Errorf("%s: took over %v, lease %d/%d, %v", name, older == first, l.Epoch, l.Attempt, err)
		}
		takeover.leave(first, false, 0, stored) // changes nothing for the second
		if older, _ := takeover.enter(storedRun("0123456789", stored, 9, 1), 0, now); older != second {
			t.Errorf("%s: the second one is forgotten", name)
		}
	}
}

func TestTakeoverKnowsAnswers(t *testing.T) {
	t.Parallel()
	now, stored := time.Unix(2000, 0), time.Unix(1000, 0)
	var takeover takeovers
	r := storedRun("0123456789", stored, 1, 1)
	_, _ = takeover.enter(r, 3, now)
	takeover.leave(r, true, 3, now)
	if _, err := takeover.enter(r, 3, now); !errors.Is(err, errAnswered) {
		t.Errorf("answered: %v", err)
	}
	for name, other := range map[string]*run{
		"stored later": storedRun("0123456789", stored.Add(1), 1, 1), "another id": storedRun("0123456780", stored, 1, 1),
	} {
		if older, err := takeover.enter(other, 3, now); older != nil || err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := takeover.enter(r, 4, now); err != nil {
		t.Errorf("after the connection was lost: %v", err)
	}
	core := storedRun("0123456789", stored, 1, 1)
	core.req.Durable = false
	if older, err := takeover.enter(core, 3, now); older != nil || err != nil {
		t.Errorf("realtime: %v", err)
	}
	for i := range maxRemembered + 10 {
		takeover.leave(storedRun(strconv.Itoa(i), stored, 1, 1), true, 3, now)
	}
	if n := len(takeover.answered.known); n != maxRemembered {
		t.Errorf("%d remembered", n)
	}
	takeover.leave(storedRun("late", stored, 1, 1), true, 3, now.Add(answerLife+1))
	if n := len(takeover.answered.known); n != 1 {
		t.Errorf("%d remembered for ever", n)
	}
}
