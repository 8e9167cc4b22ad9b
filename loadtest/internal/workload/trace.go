package workload

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cellmq/cellmq/broker"
)

// Entry is a request of a trace. Zero fields are drawn as the plan says.
type Entry struct {
	// Time since the beginning, seconds.
	Time      float64 `json:"time"`
	Model     string  `json:"model"`
	Input     string  `json:"input"`
	Length    int     `json:"length"`
	MaxTokens int     `json:"max_tokens"`
	Priority  string  `json:"priority"`
	Client    string  `json:"client"`
	// Realtime and CancelAfter, seconds, count where they are given.
	Realtime    *bool   `json:"realtime"`
	CancelAfter float64 `json:"cancel_after"`
}

func (e *Entry) apply(r *Request) {
	r.At = time.Duration(e.Time * float64(time.Second))
	if e.Model != "" {
		r.Model = e.Model
	}
	if e.Priority != "" {
		r.Priority = broker.Priority(e.Priority)
	}
	if e.Client != "" {
		r.Client = e.Client
	}
	if e.MaxTokens > 0 {
		r.MaxTokens = e.MaxTokens
	}
	if e.Realtime != nil {
		r.Realtime = *e.Realtime
	}
	if e.CancelAfter > 0 {
		r.CancelAfter = time.Duration(e.CancelAfter * float64(time.Second))
	}
}

// latest bounds a trace's times, seconds.
const latest = 7 * 24 * 3600

func (e *Entry) validate() error {
	switch {
	case !(e.Time >= 0 && e.Time <= latest):
		return fmt.Errorf("time %g: must be between 0 and %d seconds", e.Time, latest)
	case e.Length < 0 || e.Length > longest:
		return fmt.Errorf("length %d: must be between 0 and %d", e.Length, longest)
	case e.MaxTokens < 0 || e.MaxTokens > math.MaxInt32:
		return fmt.Errorf("max_tokens %d: must be between 0 and %d", e.MaxTokens, math.MaxInt32)
	case e.Model != "" && !broker.ValidModel(e.Model):
		return fmt.Errorf("model %.80q: not [a-z0-9-]{1,64}", e.Model)
	case e.Priority != "" && !ValidPriority(e.Priority):
		return fmt.Errorf("priority %.64q: not high, std or low", e.Priority)
	case e.Client != "" && !broker.ValidClient(e.Client):
		return fmt.Errorf("client %.80q: not [A-Za-z0-9_-]{1,64}", e.Client)
	case !(e.CancelAfter >= 0 && e.CancelAfter <= latest):
		return fmt.Errorf("cancel_after %g: must be between 0 and %d seconds", e.CancelAfter, latest)
	}
	return nil
}

// ReadTrace reads a trace: JSON objects, one a line, or CSV whose first line
// names its columns. Names are those of [Entry]'s keys; only time must be there.
// Entries come back in the order of their times. Errors name line and field.
func ReadTrace(r io.Reader) ([]Entry, error) {
	var trace []Entry
	var columns []string
	err := eachLine(r, func(line string) error {
		var e Entry
		var err error
		switch {
		case strings.HasPrefix(line, "{"):
			e.Time = -1 // missing
			err = strictly([]byte(line), &e)
		case columns == nil:
			columns = strings.Split(strings.ToLower(line), ",")
			return checkColumns(columns)
		default:
			e, err = csvEntry(columns, line)
		}
		if err == nil {
			err = e.validate()
		}
		trace = append(trace, e)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	if len(trace) == 0 {
		return nil, errors.New("trace: no requests")
	}
	slices.SortStableFunc(trace, func(a, b Entry) int {
		switch {
		case a.Time < b.Time:
			return -1
		case a.Time > b.Time:
			return 1
		}
		return 0
	})
	return trace, nil
}

// strictly reads a JSON object that has no other keys than those of an entry.
func strictly(line []byte, e *Entry) error {
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(e); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than an object")
	}
	return nil
}

func checkColumns(columns []string) error {
	for i, name := range columns {
		columns[i] = strings.TrimSpace(name)
		if err := (&Entry{}).set(columns[i], ""); err != nil {
			return err
		}
	}
	if !slices.Contains(columns, "time") {
		return errors.New("no column time")
	}
	return nil
}

// csvEntry reads a line without quotes: an input with commas wants JSON.
func csvEntry(columns []string, line string) (Entry, error) {
	fields := strings.Split(line, ",")
	if len(fields) != len(columns) {
		return Entry{}, fmt.Errorf("%d fields, %d columns", len(fields), len(columns))
	}
	e := Entry{Time: -1}
	for i, field := range fields {
		if err := e.set(columns[i], strings.TrimSpace(field)); err != nil {
			return Entry{}, err
		}
	}
	return e, nil
}

// set stores a field of CSV; an empty one is absent.
func (e *Entry) set(column, field string) error {
	var err error
	real := func(to *float64) {
		if field != "" {
			*to, err = strconv.ParseFloat(field, 64)
		}
	}
	whole := func(to *int) {
		if field != "" {
			*to, err = strconv.Atoi(field)
		}
	}
	switch column {
	case "time":
		real(&e.Time)
	case "model":
		e.Model = field
	case "input":
		e.Input = field
	case "length":
		whole(&e.Length)
	case "max_tokens":
		whole(&e.MaxTokens)
	case "priority":
		e.Priority = field
	case "client":
		e.Client = field
	case "realtime":
		if field != "" {
			var v bool
			v, err = strconv.ParseBool(field)
			e.Realtime = &v
		}
	case "cancel_after":
		real(&e.CancelAfter)
	default:
		return fmt.Errorf("column %.64q: unknown", column)
	}
	if err != nil {
		want := "a number"
		if column == "realtime" {
			want = "true or false"
		}
		return fmt.Errorf("%s %.64q: not %s", column, field, want)
	}
	return nil
}
