package seq2seq

import (
	"fmt"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/decode"
	"github.com/cellmq/cellmq/models/internal/brief"
	"github.com/cellmq/cellmq/models/safetensors"
)

// Model is a loaded model of the family: its program of cells. It is read-only
// and safe for concurrent use.
type Model struct {
	config     Config
	program    *cellrt.Program
	parameters int
	encoders   int // cells of the encoder: the first ones of the program
	fields     fields
}

// fields names what a slot holds.
type fields struct {
	encoder [][]state // by layer, then direction
	decoder []state
	// outputs has a layer's outputs by position: those that a next
	// bidirectional layer reads, and in the last place those that attention
	// reads. A layer that nobody reads by position has none.
	outputs []output
}

// New builds the cells of a model from its configuration, with defaults
// filled in, and its tensors. The file may be dropped afterwards.
func New(name string, c Config, f *safetensors.File) (*Model, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	w, parameters, err := loadWeights(c, f)
	if err != nil {
		return nil, err
	}
	b := newBuilder(c, w)
	if size := b.layout.Size(); size > MaxStateValues {
		return nil, fmt.Errorf("max_source_length: a sequence's state has %d values, at most %d wanted", size, MaxStateValues)
	}
	if err := b.build(); err != nil {
		return nil, err
	}
	program, err := cellrt.NewProgram(name, b.layout, b.cells...)
	if err != nil {
		return nil, fmt.Errorf("build program: %w", err)
	}
	return &Model{config: c, program: program, parameters: parameters, encoders: len(b.cells) - 2, fields: b.fields}, nil
}

// Config returns the model's configuration.
func (m *Model) Config() Config { return m.config }

// Program returns the model's cells: those of the encoder, the bridge and the
// decoder, in this order.
func (m *Model) Program() *cellrt.Program { return m.program }

// Parameters returns the number of trained parameters.
func (m *Model) Parameters() int { return m.parameters }

func (m *Model) bridge() *cellrt.Cell  { return m.program.Cells[m.encoders] }
func (m *Model) decoder() *cellrt.Cell { return m.program.Cells[m.encoders+1] }

// builder builds the layout and the cells of a model.
type builder struct {
	config Config
	w      *weights
	layout *cellrt.Layout
	cells  []*cellrt.Cell
	errs   brief.List
	fields
}

// state names the fields of a recurrent layer's state. A GRU has no c.
type state struct{ h, c cellrt.FieldID }

type output struct {
	field  cellrt.FieldID
	stored bool
}

func newBuilder(c Config, w *weights) *builder {
	b := &builder{config: c, w: w, layout: &cellrt.Layout{}}
	names := []string{"forward", "backward"}[:c.directions()]
	for i := range c.NumLayers {
		var directions []state
		for _, n := range names {
			directions = append(directions, b.addState(fmt.Sprintf("encoder.%d.%s", i, n), 1, c.EncoderHidden))
		}
		b.encoder = append(b.encoder, directions)
		last := i == c.NumLayers-1
		o := output{stored: c.Bidirectional && !last || last && c.Attention == LuongGeneral}
		if o.stored {
			o.field = b.layout.Add(fmt.Sprintf("encoder.%d.outputs", i), c.MaxSourceLength, c.memoryWidth())
		}
		b.outputs = append(b.outputs, o)
	}
	for i := range c.NumLayers {
		b.decoder = append(b.decoder, b.addState(fmt.Sprintf("decoder.%d", i), decode.Entries(c.MaxBeamWidth), c.DecoderHidden))
	}
	return b
}

func (b *builder) addState(name string, entries, hidden int) state {
	s := state{h: b.layout.Add(name+".h", entries, hidden)}
	if b.config.Cell == LSTM {
		s.c = b.layout.Add(name+".c", entries, hidden)
	}
	return s
}

// build builds the cells in the order of the program.
func (b *builder) build() error {
	if b.config.Bidirectional {
		for i := range b.config.NumLayers {
			b.buildDirection(i, 0, "forward")
			b.buildDirection(i, 1, "backward")
		}
	} else {
		b.buildEncoder()
	}
	b.buildBridge()
	b.buildDecoder()
	return b.errs.Err()
}

// finish adds a cell to the program, with its look-ahead.
func (b *builder) finish(cb *cellrt.CellBuilder, ahead int) {
	cell, err := cb.Build()
	if err != nil {
		b.errs.Add(err)
	} else {
		cell.LookAhead = ahead
	}
	b.cells = append(b.cells, cell)
}
