package cellrt_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
)

func FuzzScheduler(f *testing.F) {
	f.Add([]byte{0, 5, 1, 2, 0, 9, 1, 2, 1, 2})
	f.Add([]byte{0, 255, 0, 254, 0, 253, 1, 17, 3, 0, 2, 18, 3, 1})
	f.Add([]byte{4, 5, 0, 21, 0, 21, 0, 21, 0, 33, 0, 45, 3, 0, 5, 0, 3, 0, 5, 0, 3, 0, 0, 80, 5, 0, 7, 2, 3, 0, 5, 0})
	f.Add([]byte{8, 23, 39, 79, 78, 59, 52, 79, 3, 0, 3, 1, 5, 0, 11, 0, 5, 1, 12, 0, 3, 0, 3, 1, 5, 1, 11, 1, 8, 1, 5, 0, 12, 2, 10, 2, 3, 2, 11, 3})
	f.Add([]byte{9, 23, 0, 23, 13, 59, 26, 47, 3, 0, 3, 1, 10, 3, 5, 0, 5, 0, 5, 1, 9, 1, 3, 2, 8, 0, 10, 0, 5, 0})
	f.Add([]byte("submit, step, cancel, fail a row, finish; and again with others"))
	f.Fuzz(func(t *testing.T, program []byte) { runProgram(t, program) })
}

// TestRandomPrograms runs random programs, and sees to it that they come to
// what they are for.
func TestRandomPrograms(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(4, 4))
	var total tally
	for range 1500 {
		program := make([]byte, 2+2*rng.IntN(150))
		for i := range program {
			program[i] = byte(rng.Uint32())
		}
		for i := 2; i < len(program) && rng.IntN(4) > 0; i += 2 {
			if program[i]%13 >= 3 && rng.IntN(2) == 0 { // more steps, fewer ends
				program[i] = 3 + byte(rng.IntN(4))
			}
		}
		if w := runProgram(t, program); w != nil {
			total.add(w.tally)
		}
	}
	if total.holds < 100 || total.saves < 100 || total.suspended < 100 || total.resumed < 100 || total.cancelledAtBarrier < 10 {
		t.Errorf("the programs came to %+v", total)
	}
}

// runProgram runs a program of two bytes for the sizes of a world and two for
// each operation on it, and returns the world at its end.
func runProgram(t *testing.T, program []byte) *world {
	t.Helper()
	if len(program) < 2 {
		return nil
	}
	w := makeWorld(t, worldOptions{
		maxRows: 1 + int(program[0]%5), slots: 1 + int(program[1]%6), executors: 1 + int(program[0]/5%3),
		lookAhead: 1 + int(program[1]/6%4),
	})
	for ops := program[2:]; len(ops) >= 2; ops = ops[2:] {
		w.operate(ops[0], int(ops[1]))
	}
	w.drain()
	return w
}

// operate does one operation.
func (w *world) operate(op byte, arg int) {
	switch executor := arg % len(w.rounds); op % 13 {
	case 0, 1, 2:
		w.submit(script{
			lengths: [3]int{arg % 4, arg / 4 % 3, arg / 12 % 5},
			failAt:  arg/60 - 1, // none, or one that may lie beyond the end
			stall:   arg == 255,
			tenant:  []string{"", "a", "b"}[int(op)/13%3],
			every:   int(op) / 39 % 4,
		})
	case 3, 4:
		w.form(executor)
	case 5, 6:
		w.complete(executor)
	case 8: // expire: the oldest go first
		i := slices.IndexFunc(w.scripts, func(s *script) bool { return s.ends == 0 })
		if i >= 0 {
			w.cancel(w.scripts[i], context.DeadlineExceeded)
		}
	case 10:
		w.reshape(1 + arg%4)
	default:
		if len(w.scripts) > 0 {
			w.operateOn(w.scripts[arg%len(w.scripts)], op%13)
		}
	}
}

// operateOn does one operation on a script.
func (w *world) operateOn(s *script, op byte) {
	switch op {
	case 7:
		w.cancel(s, errTest)
	case 9:
		s.poison = !s.finished
	case 11:
		w.suspend(s, errSuspended)
	case 12:
		if s.latest != nil {
			w.resume(s)
		}
	}
}
