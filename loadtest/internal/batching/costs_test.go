package batching_test

import (
	"testing"

	"github.com/cellmq/cellmq/loadtest/internal/batching"
)

func TestCosts(t *testing.T) {
	t.Parallel()
	costs, err := batching.Costs(t.Context(), []string{batching.LSTM, batching.Tree}, 4, []int{1, 3})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range costs {
		if c.Time <= 0 {
			t.Errorf("%+v: no time", c)
		}
		got = append(got, c.Network+" "+c.Cell)
	}
	if len(got) != 6 || got[0] != "lstm encoder" || got[2] != "tree leaf" || got[5] != "tree inner" || costs[5].Rows != 3 {
		t.Errorf("%v", got)
	}
	for _, rows := range []int{0, 5000} {
		if _, err := batching.Costs(t.Context(), []string{batching.LSTM}, 4, []int{rows}); err == nil {
			t.Errorf("%d rows were taken", rows)
		}
	}
}
