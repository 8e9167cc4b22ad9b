package models

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/cellmq/cellmq/cellrt"
	"github.com/cellmq/cellmq/models/decode"
	"github.com/cellmq/cellmq/models/internal/snapshot"
)

// ErrCheckpoint is what is wrong with a checkpoint that is not one of this
// request on this model, or is damaged. The request has to start over.
var ErrCheckpoint = errors.New("checkpoint cannot be used")

// The reasons for [ErrCheckpoint].
var (
	errVersion  = fmt.Errorf("%w: not in a format that is known", ErrCheckpoint)
	errDamaged  = fmt.Errorf("%w: damaged", ErrCheckpoint)
	errStranger = fmt.Errorf("%w: of another request, or of a model with other files or weight type", ErrCheckpoint)
	errFamily   = fmt.Errorf("%w: requests like this one have none", ErrCheckpoint)
)

// A checkpoint in bytes:
//
//	magic     4  with the version of the format
//	identity 16  of the request and its model
//	checksum  4  CRC-32C of what follows
//	nodes        varint
//	graph        varint, and as many bytes
//	state        float32 values, little endian
//
// The spans that the state is of are not written: the restored graph knows
// them.
const (
	checkpointMagic = "CKP\x01"
	identitySize    = 16
	checksumSize    = 4
	headSize        = len(checkpointMagic) + identitySize + checksumSize
	valueSize       = 4
)

// restorer is a graph that can go on from a checkpoint.
type restorer interface {
	cellrt.Resumable
	// Restore brings a graph that was not started to where the graph was that
	// saved those bytes. An error means that no graph of this request did.
	Restore(saved []byte) error
}

// AppendCheckpoint appends a checkpoint of the request, which the runtime
// reported for its graph, in a form for [Model.Restore]. Whoever reads it back
// can be another process on another machine.
func (r *Request) AppendCheckpoint(dst []byte, c *cellrt.Checkpoint) []byte {
	identity := r.identity()
	dst = append(append(dst, checkpointMagic...), identity[:]...)
	at := len(dst)
	dst = append(dst, make([]byte, checksumSize)...)
	dst = binary.AppendUvarint(dst, c.Nodes)
	dst = append(snapshot.AppendInt(dst, len(c.Graph)), c.Graph...)
	for _, v := range c.State {
		dst = snapshot.AppendFloat(dst, v)
	}
	binary.LittleEndian.PutUint32(dst[at:], checksum(dst[at+checksumSize:]))
	return dst
}

// Restore unfolds a request like [Model.Unfold], into a graph that goes on from
// a checkpoint: submitted with [cellrt.SequenceOptions.From], it emits the
// tokens before the checkpoint again, at once, and gives the bits that the
// request gives from its beginning. The input and the parameters must be those
// of the request that the checkpoint is of. Anything wrong with them is an
// [*InputError]; a checkpoint of another request or model, or one that is
// damaged, is [ErrCheckpoint]. What is allocated is bounded by the sizes of the
// input and the checkpoint, which is not kept.
func (m *Model) Restore(in Input, p Params, saved []byte) (*Request, *cellrt.Checkpoint, error) {
	r, err := m.Unfold(in, p)
	if err != nil {
		return nil, nil, err
	}
	body, err := r.open(saved)
	if err != nil {
		return nil, nil, err
	}
	c, err := r.restore(body)
	if err != nil {
		return nil, nil, err
	}
	return r, c, nil
}

// open returns what follows a checkpoint's head, if it is one of the request.
func (r *Request) open(saved []byte) ([]byte, error) {
	if len(saved) < headSize || string(saved[:len(checkpointMagic)]) != checkpointMagic {
		return nil, errVersion
	}
	head, body := saved[len(checkpointMagic):headSize], saved[headSize:]
	if identity := r.identity(); !bytes.Equal(head[:identitySize], identity[:]) {
		return nil, errStranger
	}
	if binary.LittleEndian.Uint32(head[identitySize:]) != checksum(body) {
		return nil, errDamaged
	}
	return body, nil
}

// restore reads a checkpoint's body into the request's graph, which has not
// been started.
func (r *Request) restore(body []byte) (*cellrt.Checkpoint, error) {
	g, ok := r.Graph.(restorer)
	if !ok {
		return nil, errFamily
	}
	in := snapshot.NewReader(body)
	c := &cellrt.Checkpoint{Nodes: uint64(in.Int(0, math.MaxInt))}
	saved := in.Bytes(in.Count(1))
	values := in.Rest()
	if in.Err() != nil || g.Restore(saved) != nil {
		return nil, errDamaged
	}
	// A graph that would write something else did not write this.
	if c.Graph, c.Spans, ok = g.Save(nil, nil); !ok || !bytes.Equal(c.Graph, saved) {
		return nil, errDamaged
	}
	size, layout := 0, r.Model.program.Layout
	for _, s := range c.Spans {
		size += (s.To - s.From) * layout.Field(s.Field).Width
	}
	if len(values) != size*valueSize {
		return nil, errDamaged
	}
	c.State = make([]float32, size)
	state := snapshot.NewReader(values)
	for i := range c.State {
		c.State[i] = state.Float()
	}
	return c, nil
}

// identity tells requests with different outputs apart: it is made of the
// model's files and weight type, the input's tokens and the parameters.
func (r *Request) identity() [identitySize]byte {
	b := append([]byte(nil), r.Model.digest...)
	b = append(b, byte(r.Model.program.Weights))
	if r.sign != nil {
		b = r.sign(b)
	}
	sum := sha256.Sum256(b)
	return [identitySize]byte(sum[:])
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// signTokens appends tokens to what is signed.
func signTokens(dst []byte, tokens []int32) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(len(tokens)))
	for _, t := range tokens {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(t))
	}
	return dst
}

// signOptions appends how an output is chosen to what is signed.
func signOptions(dst []byte, o decode.Options, stops []string) []byte {
	for _, v := range []uint64{
		uint64(o.MaxTokens), math.Float64bits(o.Sampling.Temperature), uint64(o.Sampling.TopK), math.Float64bits(o.Sampling.TopP),
		o.Sampling.Seed, uint64(o.LogProbs), uint64(o.BeamWidth), uint64(o.NBest), uint64(len(stops)),
	} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	for _, s := range stops {
		dst = append(snapshot.AppendInt(dst, len(s)), s...)
	}
	return dst
}
