package sim

import (
	"errors"
	"fmt"
	"time"
)

// Machine is what requests run on: executors that each run one step at a time,
// and what steps cost them. It is read-only while a run uses it.
type Machine struct {
	// Executors is how many steps run at the same time, 1 to 256.
	Executors int
	// Cells are the cells of the model. Shapes refer to them by index.
	Cells []Cell
	// RoundOverhead is what an executor spends whenever it is given something
	// to run, one step or several.
	RoundOverhead time.Duration
	// StepOverhead is what an executor spends on each step it is given. A
	// policy that submits a whole batch of requests at once pays it once.
	StepOverhead time.Duration
}

// Cell is the cost and the limits of one cell.
type Cell struct {
	Name string
	// Fixed is what a step costs whatever its number of rows, and Row what each
	// row adds.
	Fixed, Row time.Duration
	// Measured is what steps of certain numbers of rows cost, instead of Fixed
	// and Row: rising numbers from 1 to MaxRows or more. A step of a number
	// between two costs what the straight line between them says.
	Measured []Cost
	// MaxRows is the largest batch, 1 to 4096.
	MaxRows int
	// LookAhead is how many batches of the cell an executor may be given at
	// once by [Cellular]; 0 means 1.
	LookAhead int
}

// Cost is what a step of so many rows costs.
type Cost struct {
	Rows int
	Time time.Duration
}

const (
	largestExecutors = 256
	largestMaxRows   = 4096
	largestStep      = time.Hour
)

// Cost returns how long one step of a cell takes, without overheads. There are
// 1 to MaxRows rows.
func (m Machine) Cost(cell, rows int) time.Duration {
	c := &m.Cells[cell]
	if c.Measured == nil {
		return c.Fixed + time.Duration(rows)*c.Row
	}
	i := 0
	for c.Measured[i].Rows < rows {
		i++
	}
	to := c.Measured[i]
	if to.Rows == rows {
		return to.Time
	}
	from := c.Measured[i-1]
	return from.Time + (to.Time-from.Time)*time.Duration(rows-from.Rows)/time.Duration(to.Rows-from.Rows)
}

// Validate returns every field that is out of bounds, joined.
func (m Machine) Validate() error {
	var errs []error
	if m.Executors < 1 || m.Executors > largestExecutors {
		errs = append(errs, fmt.Errorf("machine Executors %d: want 1 to %d", m.Executors, largestExecutors))
	}
	if m.RoundOverhead < 0 || m.StepOverhead < 0 {
		errs = append(errs, fmt.Errorf("machine overheads %s and %s: want 0 or more", m.RoundOverhead, m.StepOverhead))
	}
	if len(m.Cells) == 0 {
		errs = append(errs, errors.New("machine Cells: want at least 1"))
	}
	for i, c := range m.Cells {
		if c.MaxRows < 1 || c.MaxRows > largestMaxRows {
			errs = append(errs, fmt.Errorf("machine cell %d MaxRows %d: want 1 to %d", i, c.MaxRows, largestMaxRows))
		}
		if c.Measured != nil {
			errs = append(errs, c.validateMeasured(i))
		} else if c.Fixed < 0 || c.Row < 0 || c.Fixed+c.Row <= 0 {
			errs = append(errs, fmt.Errorf("machine cell %d costs %s + %s a row: want a positive step", i, c.Fixed, c.Row))
		}
		if c.LookAhead < 0 {
			errs = append(errs, fmt.Errorf("machine cell %d LookAhead %d: want 0 or more", i, c.LookAhead))
		}
	}
	return errors.Join(errs...)
}

// validateMeasured returns what is wrong with the costs that were measured of
// the machine's cell i.
func (c *Cell) validateMeasured(i int) error {
	if len(c.Measured) == 0 || c.Measured[0].Rows != 1 || c.Measured[len(c.Measured)-1].Rows < c.MaxRows {
		return fmt.Errorf("machine cell %d Measured: want numbers of rows from 1 to at least %d", i, c.MaxRows)
	}
	last := 0
	for _, m := range c.Measured {
		if m.Rows <= last {
			return fmt.Errorf("machine cell %d Measured: %d rows after %d, want rising numbers", i, m.Rows, last)
		}
		if m.Time <= 0 || m.Time > largestStep {
			return fmt.Errorf("machine cell %d Measured: %d rows cost %s, want more than 0 and at most %s", i, m.Rows, m.Time, largestStep)
		}
		last = m.Rows
	}
	return nil
}
