package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cellmq/cellmq/loadtest/peers/internal/workload"
)

// Library computes cases. It is used by one goroutine, always on the same
// thread of the operating system if it says so.
type Library interface {
	// Hello returns what the library says of itself.
	Hello() Hello
	// Load prepares the weights of a case; its rows are 0. It returns an error
	// that wraps [ErrUnsupported] for what the library does not have.
	Load(shape workload.Case, p workload.Parameters) (Model, error)
}

// Model is loaded weights.
type Model interface {
	// Bind prepares a batch: memory for its results, with the inputs in place.
	Bind(c workload.Case, in workload.Inputs) (Call, error)
	// Close frees the weights. The model's calls have been closed before.
	Close()
}

// Call is a batch ready to be computed, as often as wanted.
type Call interface {
	// Run computes the batch.
	Run() error
	// Output copies the results, Outputs of the case, row by row.
	Output(to []float32) error
	// Close frees the memory of the batch.
	Close()
}

// detailed is a call that knows how its library computes it.
type detailed interface {
	Detail() string
}

// Serve answers the requests that come in until there are no more. It returns
// an error only when it cannot read or write.
func Serve(in io.Reader, out io.Writer, lib Library) error {
	requests, responses := json.NewDecoder(in), json.NewEncoder(out)
	if err := responses.Encode(lib.Hello()); err != nil {
		return fmt.Errorf("say hello: %w", err)
	}
	if lib.Hello().Unavailable != "" {
		return nil
	}
	s := server{lib: lib}
	defer s.unload()
	for {
		var r Request
		switch err := requests.Decode(&r); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read a request: %w", err)
		}
		response, err := s.answer(r)
		switch {
		case errors.Is(err, ErrUnsupported):
			response = Response{Unsupported: err.Error()}
		case err != nil:
			response = Response{Error: err.Error()}
		}
		if err := responses.Encode(response); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
}

// server keeps what was prepared for the latest request.
type server struct {
	lib   Library
	shape workload.Case
	model Model
	bound workload.Case
	call  Call
}

func (s *server) answer(r Request) (Response, error) {
	if err := r.Case.Validate(); err != nil {
		return Response{}, err
	}
	if err := s.prepare(r.Case); err != nil {
		return Response{}, err
	}
	if r.At == nil {
		return s.measure(time.Duration(r.Duration))
	}
	if err := s.call.Run(); err != nil {
		return Response{}, err
	}
	all := make([]float32, r.Case.Outputs())
	if err := s.call.Output(all); err != nil {
		return Response{}, fmt.Errorf("read the results: %w", err)
	}
	values := make([]float32, len(r.At))
	for i, at := range r.At {
		if at < 0 || at >= len(all) {
			return Response{}, fmt.Errorf("result %d of %d", at, len(all))
		}
		values[i] = all[at]
	}
	response := Response{Values: pack(values)}
	if d, ok := s.call.(detailed); ok {
		response.Detail = d.Detail()
	}
	return response, nil
}

// prepare loads and binds what is not there yet.
func (s *server) prepare(c workload.Case) error {
	if s.model == nil || s.shape != c.Shape() {
		s.unload()
		m, err := s.lib.Load(c.Shape(), c.MakeParameters())
		if err != nil {
			return fmt.Errorf("load %s: %w", c, err)
		}
		s.model, s.shape = m, c.Shape()
	}
	if s.call == nil || s.bound != c {
		s.unbind()
		call, err := s.model.Bind(c, c.MakeInputs())
		if err != nil {
			return fmt.Errorf("prepare %d rows of %s: %w", c.Rows, c, err)
		}
		s.call, s.bound = call, c
	}
	return nil
}

func (s *server) unbind() {
	if s.call != nil {
		s.call.Close()
		s.call = nil
	}
}

func (s *server) unload() {
	s.unbind()
	if s.model != nil {
		s.model.Close()
		s.model = nil
	}
}

const (
	// warmUp is the share of the duration spent before anything counts: the
	// caches hold another process's data, and threads sleep.
	warmUp = 5
	// mostCalls bounds the memory of a measurement.
	mostCalls = 1 << 20
)

// measure times calls, back to back.
func (s *server) measure(d time.Duration) (Response, error) {
	for start := time.Now(); ; {
		if err := s.call.Run(); err != nil {
			return Response{}, err
		}
		if time.Since(start) >= d/warmUp {
			break
		}
	}
	var times []int64
	for start := time.Now(); len(times) == 0 || time.Since(start) < d && len(times) < mostCalls; {
		before := time.Now()
		if err := s.call.Run(); err != nil {
			return Response{}, err
		}
		times = append(times, time.Since(before).Nanoseconds())
	}
	slices.Sort(times)
	return Response{Best: times[0], Median: times[len(times)/2], Calls: len(times)}, nil
}
