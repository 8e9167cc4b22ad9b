package broker

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
)

// TestQuestionsTakeTurns has one client ask far more than may wait, and another a
// little: the other waits behind one question of the flood for each of its own, all
// of its questions are answered, in their order, and the flood's loss is told once.
func TestQuestionsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		lost := 0
		q := newQuestions("resume", slog.New(slog.NewTextHandler(&log, nil)), func() { lost++ })
		var order []string
		ask := func(client string, i int) { q.ask(client, func() { order = append(order, fmt.Sprint(client, i)) }) }
		const flood, few = 3 * maxQuestions, 20
		for i := range flood / 2 {
			ask("flood", i)
		}
		for i := range few {
			ask("good", i)
		}
		for i := range flood / 2 {
			ask("flood", flood/2+i)
		}
		go q.run(t.Context())
		synctest.Wait()
		good := 0
		for i, name := range order {
			if !strings.HasPrefix(name, "good") {
				continue
			}
			if name != fmt.Sprint("good", good) || i > 2*good+1 {
				t.Errorf("%s has place %d", name, i)
			}
			good++
		}
		if good != few || len(order) != maxQuestions || lost != flood+few-maxQuestions {
			t.Errorf("%d of %d answers to the other, %d lost", good, len(order), lost)
		}
		if last := order[len(order)-1]; last != fmt.Sprint("flood", flood-1) {
			t.Errorf("the last one is %s", last)
		}
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "client=flood") {
			t.Errorf("log: %s", log.String())
		}
		ask("good", few)
		synctest.Wait()
		if len(order) != maxQuestions+1 {
			t.Error("a question after a quiet time has no answer")
		}
	})
}
