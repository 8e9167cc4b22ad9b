package ask

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/cellmq/cellmq/loadtest/internal/workload"
)

// encoder writes payloads. One goroutine uses it.
type encoder struct {
	out bytes.Buffer
	to  *msgpack.Encoder
	ids []byte
}

func newEncoder() *encoder {
	e := &encoder{}
	e.to = msgpack.NewEncoder(&e.out)
	e.to.UseCompactInts(true)
	return e
}

// encode returns the payload of a request, valid until the next call.
func (e *encoder) encode(r *workload.Request) ([]byte, error) {
	e.out.Reset()
	keys := 1
	sampled := r.Temperature > 0
	for _, given := range []bool{r.MaxTokens > 0, r.Beam > 0, sampled, sampled} {
		if given {
			keys++
		}
	}
	var err error
	put := func(f func() error) {
		if err == nil {
			err = f()
		}
	}
	number := func(key string, n uint64) {
		put(func() error { return e.to.EncodeString(key) })
		put(func() error { return e.to.EncodeUint(n) })
	}
	put(func() error { return e.to.EncodeMapLen(keys) })
	put(func() error { return e.to.EncodeString("input") })
	if r.Input.IsIDs {
		e.ids = e.ids[:0]
		for _, id := range r.Input.IDs {
			e.ids = binary.LittleEndian.AppendUint32(e.ids, uint32(id))
		}
		put(func() error { return e.to.EncodeBytes(e.ids) })
	} else {
		put(func() error { return e.to.EncodeString(r.Input.Text) })
	}
	if r.MaxTokens > 0 {
		number("max_tokens", uint64(r.MaxTokens))
	}
	if r.Beam > 0 {
		number("beam_width", uint64(r.Beam))
	}
	if sampled {
		if math.IsInf(r.Temperature, 0) {
			return nil, fmt.Errorf("temperature %g: not finite", r.Temperature)
		}
		put(func() error { return e.to.EncodeString("temperature") })
		put(func() error { return e.to.EncodeFloat64(r.Temperature) })
		number("seed", r.Seed)
	}
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return e.out.Bytes(), nil
}
