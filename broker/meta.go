package broker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"
)

// Meta is a map of the client's own in encoded form: MessagePack, or JSON when
// it starts with a brace. It stays encoded so that it comes back untouched,
// byte for byte in the encoding it was sent in. Empty means none.
type Meta []byte

// NewMeta encodes m in MessagePack. Its values are nil, bool, integers,
// floats, string, []byte, []any and map[string]any.
func NewMeta(m map[string]any) (Meta, error) {
	if len(m) == 0 {
		return nil, nil
	}
	b, err := msgpack.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode meta: %w", err)
	}
	if err := Meta(b).check(); err != nil {
		return nil, fmt.Errorf("encode meta: %w", err)
	}
	return b, nil
}

func (m Meta) encoding() Encoding {
	if len(m) > 0 && m[0] == '{' {
		return JSON
	}
	return MsgPack
}

// check applies the bounds; it is enough to make decoding safe.
func (m Meta) check() error {
	if len(m) > maxMeta {
		return errTooLongMeta
	}
	if m.encoding() == JSON {
		if err := scanJSON(m); err != nil {
			return err
		}
		if !json.Valid(m) {
			return errors.New("malformed JSON")
		}
		return nil
	}
	if h, err := readHead(m); err != nil {
		return err
	} else if h.kind != mpMap {
		return errors.New("not a map")
	}
	return scanMsgPack(m)
}

// Map decodes m. JSON numbers become json.Number.
func (m Meta) Map() (map[string]any, error) {
	if len(m) == 0 {
		return nil, nil
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("decode meta: %w", err)
	}
	var v map[string]any
	var err error
	if m.encoding() == JSON {
		d := json.NewDecoder(bytes.NewReader(m))
		d.UseNumber()
		err = d.Decode(&v)
	} else {
		err = msgpack.Unmarshal(m, &v)
	}
	if err != nil {
		return nil, fmt.Errorf("decode meta: %w", err)
	}
	return v, nil
}

// MarshalJSON makes the meta readable wherever a frame is printed.
func (m Meta) MarshalJSON() ([]byte, error) {
	if len(m) == 0 {
		return []byte("null"), nil
	}
	b, err := m.in(JSON)
	return []byte(b), err
}

// in returns m in an encoding, translated when it has the other one.
func (m Meta) in(enc Encoding) (Meta, error) {
	if len(m) == 0 || m.encoding() == enc {
		return m, nil
	}
	v, err := m.Map()
	if err != nil {
		return nil, err
	}
	var b []byte
	if enc == JSON {
		b, err = json.Marshal(v)
	} else {
		b, err = msgpack.Marshal(plainNumbers(v))
	}
	if err != nil {
		return nil, fmt.Errorf("translate meta: %w", err)
	}
	return b, nil
}

// plainNumbers replaces json.Number, which MessagePack would carry as text.
func plainNumbers(v any) any {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i
		}
		f, _ := v.Float64() // out of range is an infinity, which is what can be said of it
		return f
	case map[string]any:
		for k, e := range v {
			v[k] = plainNumbers(e)
		}
	case []any:
		for i, e := range v {
			v[i] = plainNumbers(e)
		}
	}
	return v
}
