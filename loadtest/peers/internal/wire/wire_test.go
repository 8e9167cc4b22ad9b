package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cellmq/cellmq/loadtest/peers/internal/wire"
	"github.com/cellmq/cellmq/loadtest/peers/internal/workload"
)

// library counts what it is asked for. Results are their own places.
type library struct {
	loads, binds, runs, closed int
}

func (l *library) Hello() wire.Hello { return wire.Hello{Library: "test", Version: "1"} }

func (l *library) Load(shape workload.Case, p workload.Parameters) (wire.Model, error) {
	l.loads++
	if shape.Kind == workload.GRU {
		return nil, fmt.Errorf("%w: no gates", wire.ErrUnsupported)
	}
	if shape.Rows != 0 || len(p.Weight) != shape.Inputs*shape.Units {
		return nil, errors.New("wrong parameters")
	}
	return l, nil
}

func (l *library) Bind(c workload.Case, in workload.Inputs) (wire.Call, error) {
	l.binds++
	if len(in.X) != c.Rows*c.Inputs {
		return nil, errors.New("wrong inputs")
	}
	return call{l}, nil
}

func (l *library) Close() { l.closed++ }

type call struct{ *library }

func (c call) Run() error {
	c.runs++
	return nil
}

func (c call) Output(to []float32) error {
	for i := range to {
		to[i] = float32(i)
	}
	return nil
}

func TestServe(t *testing.T) {
	t.Parallel()
	product := func(rows int) workload.Case {
		return workload.Case{Kind: workload.Product, Inputs: 2, Units: 3, Rows: rows, Weights: workload.F32}
	}
	gru := product(1)
	gru.Kind = workload.GRU
	var in, out bytes.Buffer
	requests := json.NewEncoder(&in)
	for _, r := range []wire.Request{
		{Case: product(2), At: []int{0, 5}},
		{Case: product(2), Duration: 1},
		{Case: product(1), Duration: 1},
		{Case: gru, At: []int{0}},
		{Case: product(1), At: []int{3}},
		{Case: product(-1), At: []int{0}},
	} {
		if err := requests.Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	l := &library{}
	if err := wire.Serve(&in, &out, l); err != nil {
		t.Fatal(err)
	}
	if l.loads != 3 || l.binds != 3 {
		t.Errorf("%d loads and %d binds, want 3: what was prepared is kept", l.loads, l.binds)
	}
	if l.closed != l.loads-1+l.binds {
		t.Errorf("%d things closed of %d", l.closed, l.loads-1+l.binds)
	}
	answers := json.NewDecoder(&out)
	var hello wire.Hello
	if err := answers.Decode(&hello); err != nil || hello.Library != "test" {
		t.Fatalf("hello %+v, error %v", hello, err)
	}
	var r [6]wire.Response
	for i := range r {
		if err := answers.Decode(&r[i]); err != nil {
			t.Fatal(err)
		}
	}
	if want := []byte{0, 0, 0, 0, 0, 0, 0xa0, 0x40}; !bytes.Equal(r[0].Values, want) {
		t.Errorf("results % x, want % x", r[0].Values, want)
	}
	for _, timed := range r[1:3] {
		if timed.Calls < 1 || timed.Best > timed.Median || timed.Error != "" {
			t.Errorf("times %+v", timed)
		}
	}
	if !strings.Contains(r[3].Unsupported, "no gates") || r[3].Error != "" {
		t.Errorf("answer %+v to what is not supported", r[3])
	}
	for i, text := range map[int]string{4: "result 3 of 3", 5: "rows -1"} {
		if !strings.Contains(r[i].Error, text) {
			t.Errorf("error %q, want %q in it", r[i].Error, text)
		}
	}
}

func TestMissing(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := wire.Serve(strings.NewReader(""), &out, wire.Missing{Name: "x", Reason: "not here"}); err != nil {
		t.Fatal(err)
	}
	var hello wire.Hello
	if err := json.Unmarshal(out.Bytes(), &hello); err != nil || hello.Unavailable != "not here" {
		t.Errorf("hello %+v, error %v", hello, err)
	}
}

// TestStart wants what is no library to be one that is not available.
func TestStart(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"/does/not/exist", "/bin/false"} {
		c, err := wire.Start(t.Context(), t.Output(), nil, command)
		if err != nil {
			t.Fatal(err)
		}
		if c.Hello().Unavailable == "" {
			t.Errorf("%s is available", command)
		}
		if err := c.Close(); err != nil && command != "/bin/false" {
			t.Error(err)
		}
	}
}
