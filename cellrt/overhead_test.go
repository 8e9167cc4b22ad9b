package cellrt_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/cellrt/cpu"
)

// BenchmarkOverhead tells how much of a step is not arithmetic: a language
// model with one LSTM layer of 512, 16 rows, each of another tenant. It
// reports the scheduler's part, with its graphs and its results, and that of
// gathers and scatters, as per cent of the step.
func BenchmarkOverhead(b *testing.B) {
	const hidden, rows = 512, 16
	r := rand.New(rand.NewPCG(1, 1))
	matrix := func(rows, cols int) *cellrt.Matrix {
		m := &cellrt.Matrix{Name: "m", Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
		for i := range m.Data {
			m.Data[i] = float32(r.NormFloat64()) * 0.05
		}
		return m
	}
	layout := &cellrt.Layout{}
	h, c := layout.Add("h", 1, hidden), layout.Add("c", 1, hidden)
	step := cellrt.NewCell("step", layout, 2)
	outH, outC := step.LSTM(matrix(4*hidden, hidden), matrix(4*hidden, hidden), make([]float32, 4*hidden),
		step.Embed(matrix(256, hidden), 0), step.Load(h, 1), step.Load(c, 1))
	step.Store(h, cellrt.Zero, 0, outH)
	step.Store(c, cellrt.Zero, 0, outC)
	step.Greedy(step.Linear(matrix(256, hidden), nil, cellrt.None, outH))
	moves := cellrt.NewCell("gathers and scatters", layout, 2) // those of a step, and nothing else
	moves.Store(h, cellrt.Zero, 0, moves.Load(h, 1))
	moves.Store(c, cellrt.Zero, 0, moves.Load(c, 1))
	stepCell, movesCell := build(b, step, 1), build(b, moves, 1)
	p, err := cellrt.NewProgram("overhead", layout, stepCell, movesCell)
	if err != nil {
		b.Fatal(err)
	}
	x, err := cpu.New(cpu.Config{}).Load(p, rows)
	if err != nil {
		b.Fatal(err)
	}
	m, err := cellrt.NewModel(p, rows)
	if err != nil {
		b.Fatal(err)
	}
	s := cellrt.NewScheduler(cellrt.SchedulerConfig{MaxRows: rows, Executors: 1})
	s.Add(m)
	for i := range rows {
		q := cellrt.NewSequence(m, &babbleGraph{stepCell}, cellrt.SequenceOptions{Tenant: string(rune('a' + i))})
		if err := s.Submit(q); err != nil {
			b.Fatal(err)
		}
	}
	runner := x.NewRunner()
	var batch cellrt.Batch
	var scheduling, moving, total time.Duration
	for b.Loop() {
		began := time.Now()
		s.Next(0, &batch)
		formed := time.Now()
		runner.Run(batch.Cell, batch.Rows, batch.Outputs)
		ran := time.Now()
		batchRows := batch.Rows
		s.Complete(&batch, rows)
		s.Clear()
		completed := time.Now()
		runner.Run(movesCell, batchRows, nil)
		moving += time.Since(completed)
		scheduling += formed.Sub(began) + completed.Sub(ran)
		total += completed.Sub(began)
	}
	b.ReportMetric(100*float64(scheduling)/float64(total), "scheduling-%")
	b.ReportMetric(100*float64(moving)/float64(total), "moving-%")
	b.ReportMetric(float64(total.Microseconds())/float64(b.N), "us/step")
}
