package workload_test

import (
	"strings"
	"testing"
	"time"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/loadtest/internal/workload"
)

// TestTraceReplay wants both forms to be replayed in the order of their times,
// with what they leave open drawn.
func TestTraceReplay(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"csv":  "time, model,length,priority,client,max_tokens,realtime,cancel_after\n2.5,b,7,low,c9,3,true,0.5\n0.25,,,,,,,\n",
		"json": `{"time":2.5,"model":"b","length":7,"priority":"low","client":"c9","max_tokens":3,"realtime":true,"cancel_after":0.5}` + "\n" + `{"time":0.25}`,
	} {
		trace, err := workload.ReadTrace(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		p := plan(t)
		p.Trace, p.Arrivals = trace, workload.Arrivals{}
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		got := draw(t, p, 10)
		if len(got) != 2 || got[0].At != 250*time.Millisecond || got[0].Model == "" || got[0].MaxTokens != 8 {
			t.Fatalf("%s: %+v", name, got)
		}
		r := got[1]
		if r.At != 2500*time.Millisecond || r.Model != "b" || len(r.Input.IDs) != 7 || r.Priority != broker.Low || r.Client != "c9" ||
			r.MaxTokens != 3 || !r.Realtime || r.CancelAfter != 500*time.Millisecond {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestRefusedTraces(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                   "no requests",
		"model\na":                           "line 1: no column time",
		"time,colour\n1,red":                 `line 1: column "colour": unknown`,
		"time," + strings.Repeat("x", 9000):  strings.Repeat("x", 64) + `": unknown`,
		"time,model\n1":                      "line 2: 1 fields, 2 columns",
		"time\nsoon":                         `line 2: time "soon": not a number`,
		"time\n-1":                           "line 2: time -1: must be between",
		"time\nNaN":                          "line 2: time NaN",
		`{"model":"a"}`:                      "line 1: time -1",
		`{"time":1,"model":"A.>"}`:           `line 1: model "A.>"`,
		`{"time":1,"priority":"urgent"}`:     `line 1: priority "urgent"`,
		`{"time":1,"client":"a b"}`:          `line 1: client "a b"`,
		`{"time":1,"length":-2}`:             "line 1: length -2",
		`{"time":1,"max_tokens":-2}`:         "line 1: max_tokens -2",
		`{"time":1,"cancel_after":-2}`:       "line 1: cancel_after -2",
		`{"time":1,"size":2}`:                `line 1: json: unknown field "size"`,
		`{"time":1}}`:                        "line 1: more than an object",
		"time,realtime\n1,maybe":             `line 2: realtime "maybe": not true or false`,
		`{"time":1}` + "\n" + `{"time":"1"}`: "line 2:",
	} {
		if _, err := workload.ReadTrace(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
