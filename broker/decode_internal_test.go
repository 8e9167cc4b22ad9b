package broker

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/vmihailenco/msgpack/v5"
)

func newTestDecoder() *decoder {
	return &decoder{subjects: "infer", replyPrefixes: []string{"_INBOX."}, maxPayload: 1 << 20}
}

func durable(h nats.Header, payload []byte) (*Request, *Error) {
	now := time.UnixMilli(1_000_000)
	return newTestDecoder().durable(message{subject: "infer.req.m.std.me", header: h, payload: payload}, 7, now, now)
}

func ptr[T any](v T) *T { return &v }

// pack encodes with an encoder that is not ours.
func pack(tb testing.TB, v any) []byte {
	tb.Helper()
	b, err := msgpack.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestDecodeRequest(t *testing.T) {
	t.Parallel()
	full := map[string]any{
		"input": "hé\u0000", "max_tokens": 5, "temperature": 0.5, "top_p": 1, "top_k": 40, "seed": uint64(math.MaxUint64),
		"stop": []string{"a", "bb"}, "beam_width": 4, "n_best": 2, "logprobs": 1, "ramps": true, "echo": true,
		"meta": map[string]any{"a": []any{"x", map[string]any{}}}, "unknown": []any{1, nil, "x"},
	}
	want := Params{
		MaxTokens: ptr(5), Temperature: ptr(0.5), TopP: ptr(1.0), TopK: ptr(40), Seed: ptr(uint64(math.MaxUint64)),
		Stop: []string{"a", "bb"}, BeamWidth: ptr(4), NBest: ptr(2), LogProbs: ptr(1), Ramps: true, Echo: true,
	}
	asJSON, err := json.Marshal(full)
	if err != nil {
		t.Fatal(err)
	}
	for name, payload := range map[string][]byte{"msgpack": pack(t, full), "json": asJSON} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, bad := durable(nil, payload)
			if bad != nil {
				t.Fatal(bad)
			}
			meta, err := r.Params.Meta.Map()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(full["meta"], any(meta)); diff != "" {
				t.Error(diff)
			}
			r.Params.Meta = nil
			if diff := cmp.Diff(want, r.Params); diff != "" {
				t.Error(diff)
			}
			if r.Input.Text != "hé\x00" || r.ID != "s0000000007" || r.Reply != "infer.out.me.s0000000007" ||
				r.Model != "m" || r.Client != "me" || r.Priority != Std || r.Mode != ModeStream || r.OnGone != OnGoneCancel {
				t.Errorf("request = %+v", r)
			}
		})
	}
}

func TestDecodeInput(t *testing.T) {
	t.Parallel()
	bin := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, 1), 70000)
	ids := Input{IDs: []int32{1, 70000}, IsIDs: true}
	none := Input{IDs: []int32{}, IsIDs: true}
	tests := []struct {
		name, contentType string
		payload           []byte
		want              Input
		encoding          Encoding
	}{
		{"plain text", "", []byte("hello"), Input{Text: "hello"}, JSON},
		{"empty", "", nil, Input{}, JSON},
		{"text that starts like a map", "", []byte("ހޑ"), Input{Text: "ހޑ"}, JSON},
		{"json as text", "text/plain; charset=utf-8", []byte(`{"input":1}`), Input{Text: `{"input":1}`}, JSON},
		{"json ids", "", []byte(`{"input": [1 , 70000]}`), ids, JSON},
		{"json no ids", "", []byte(`{"input":[]}`), none, JSON},
		{"msgpack ids", "", pack(t, map[string]any{"input": []int{1, 70000}}), ids, MsgPack},
		{"msgpack bin", "", pack(t, map[string]any{"input": bin}), ids, MsgPack},
		{"msgpack no ids", "", pack(t, map[string]any{"input": []int{}}), none, MsgPack},
		{"map16", "", append([]byte{0xde, 0, 1}, pack(t, map[string]any{"input": "x"})[1:]...), Input{Text: "x"}, MsgPack},
		{"last of repeated keys", "", []byte(`{"input":"a","input":"b"}`), Input{Text: "b"}, JSON},
		{"last of repeated keys, msgpack", "", append([]byte{0x82}, bytes.Repeat(pack(t, map[string]any{"input": "b"})[1:], 2)...), Input{Text: "b"}, MsgPack},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := nats.Header{}
			if tt.contentType != "" {
				h["content-type"] = []string{tt.contentType}
			}
			r, bad := durable(h, tt.payload)
			if bad != nil {
				t.Fatal(bad)
			}
			if diff := cmp.Diff(tt.want, r.Input); diff != "" || r.Encoding != tt.encoding {
				t.Errorf("encoding %d: %s", r.Encoding, diff)
			}
		})
	}
}

// TestBadRequests gives each wrong field its code and its name.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	body := func(key string, v any) []byte { return pack(t, map[string]any{"input": "x", key: v}) }
	hdr := func(k, v string) nats.Header { return nats.Header{k: {v}} }
	ok := []byte(`{"input":"x"}`)
	tests := []struct {
		name    string
		header  nats.Header
		payload []byte
		code    Code
		names   string
	}{
		{"no input", nil, []byte(`{}`), CodeBadRequest, "input"},
		{"null input", nil, []byte(`{"input":null}`), CodeBadRequest, "input"},
		{"input number", nil, []byte(`{"input":3}`), CodeBadRequest, "input"},
		{"input float ids", nil, []byte(`{"input":[1.5]}`), CodeBadRequest, "input[0]"},
		{"input negative id", nil, []byte(`{"input":[1,-1]}`), CodeBadRequest, "input[1]"},
		{"input nested", nil, []byte(`{"input":[[1]]}`), CodeBadRequest, "input[0]"},
		{"input nested msgpack", nil, pack(t, map[string]any{"input": []any{1, []any{2}}}), CodeBadRequest, "input[1]"},
		{"input bin", nil, pack(t, map[string]any{"input": []byte{1, 2, 3}}), CodeBadRequest, "input"},
		{"input not UTF-8", nil, pack(t, map[string]any{"input": "\xff"}), CodeBadRequest, "input"},
		{"text not UTF-8", nil, []byte("\xff\xfe"), CodeBadRequest, "UTF-8"},
		{"json not UTF-8", nil, []byte("{\"input\":\"\xff\"}"), CodeBadRequest, "UTF-8"},
		{"malformed json", nil, []byte(`{"input":"x"`), CodeBadRequest, "JSON"},
		{"json tail", nil, []byte(`{"input":"x"} {}`), CodeBadRequest, "JSON"},
		{"json brackets", nil, []byte(`{"input":"x"]]`), CodeBadRequest, "JSON"},
		{"not an object", hdr("Content-Type", TypeJSON), []byte(`[]`), CodeBadRequest, "JSON"},
		{"empty json", hdr("Content-Type", TypeJSON), nil, CodeBadRequest, "JSON"},
		{"empty msgpack", hdr("Content-Type", TypeMsgPack), nil, CodeBadRequest, "MessagePack"},
		{"msgpack array", hdr("Content-Type", TypeMsgPack), []byte{0x90}, CodeBadRequest, "map"},
		{"msgpack cut", nil, pack(t, map[string]any{"input": "hello"})[:9], CodeBadRequest, "MessagePack"},
		{"msgpack tail", nil, append(pack(t, map[string]any{"input": "hello"}), 0xc0), CodeBadRequest, "MessagePack"},
		{"max_tokens negative", nil, body("max_tokens", -1), CodeBadRequest, "max_tokens"},
		{"max_tokens string", nil, body("max_tokens", "5"), CodeBadRequest, "max_tokens"},
		{"max_tokens float", nil, []byte(`{"input":"x","max_tokens":1.0}`), CodeBadRequest, "max_tokens"},
		{"max_tokens huge", nil, body("max_tokens", uint64(math.MaxUint64)), CodeBadRequest, "max_tokens"},
		{"temperature NaN", nil, body("temperature", math.NaN()), CodeBadRequest, "temperature"},
		{"temperature negative", nil, body("temperature", -0.5), CodeBadRequest, "temperature"},
		{"temperature overflow", nil, []byte(`{"input":"x","temperature":1e999}`), CodeBadRequest, "temperature"},
		{"temperature bool", nil, body("temperature", true), CodeBadRequest, "temperature"},
		{"top_p Inf", nil, body("top_p", math.Inf(1)), CodeBadRequest, "top_p"},
		{"top_k", nil, body("top_k", []int{1}), CodeBadRequest, "top_k"},
		{"seed", nil, body("seed", -3), CodeBadRequest, "seed"},
		{"seed too large", nil, []byte(`{"input":"x","seed":18446744073709551616}`), CodeBadRequest, "seed"},
		{"stop", nil, body("stop", "x"), CodeBadRequest, "stop"},
		{"stop element", nil, body("stop", []any{"a", 1}), CodeBadRequest, "stop[1]"},
		{"stop null", nil, []byte(`{"input":"x","stop":[null]}`), CodeBadRequest, "stop[0]"},
		{"stop empty", nil, body("stop", []string{""}), CodeBadRequest, "stop[0]"},
		{"stop long", nil, body("stop", []string{"a", strings.Repeat("x", 129)}), CodeBadRequest, "stop[1]: length 129 not in 1..128"},
		{"stop many", nil, body("stop", strings.Split(strings.Repeat("x ", 17)+"x", " ")), CodeBadRequest, "stop"},
		{"beam_width", nil, body("beam_width", 1.5), CodeBadRequest, "beam_width"},
		{"n_best", nil, body("n_best", -1), CodeBadRequest, "n_best"},
		{"logprobs", nil, body("logprobs", map[string]any{}), CodeBadRequest, "logprobs"},
		{"ramps", nil, body("ramps", 1), CodeBadRequest, "ramps"},
		{"ramps json", nil, []byte(`{"input":"x","ramps":"yes"}`), CodeBadRequest, "ramps"},
		{"echo", nil, body("echo", 1), CodeBadRequest, "echo"},
		{"meta", nil, body("meta", "x"), CodeBadRequest, "meta"},
		{"meta json", nil, []byte(`{"input":"x","meta":[1]}`), CodeBadRequest, "meta"},
		{"meta long", nil, body("meta", map[string]any{"k": strings.Repeat("x", maxMeta)}), CodeBadRequest, "meta"},
		{"id", hdr(HeaderID, "no good!"), ok, CodeBadRequest, HeaderID},
		{"short id", hdr(HeaderID, "abc"), ok, CodeBadRequest, HeaderID},
		{"zero deadline", hdr(HeaderDeadline, "0"), ok, CodeBadRequest, HeaderDeadline},
		{"negative deadline", hdr(HeaderDeadline, "-5"), ok, CodeBadRequest, HeaderDeadline},
		{"deadline text", hdr(HeaderDeadline, "soon"), ok, CodeBadRequest, HeaderDeadline},
		{"deadline passed", hdr(HeaderDeadline, "999999"), ok, CodeDeadlineExceeded, "deadline"},
		{"mode", hdr(HeaderMode, "fast"), ok, CodeBadRequest, HeaderMode},
		{"on gone", hdr(HeaderOnGone, "x"), ok, CodeBadRequest, HeaderOnGone},
		{"version", hdr(HeaderVersion, strings.Repeat("1", 65)), ok, CodeBadRequest, HeaderVersion},
		{"reply-to", hdr(HeaderReplyTo, "$JS.API.STREAM.DELETE.INFER"), ok, CodeBadRequest, HeaderReplyTo},
		{"reply-to wildcard", hdr(HeaderReplyTo, "_INBOX.>"), ok, CodeBadRequest, HeaderReplyTo},
		{"content type", hdr(HeaderContentType, "image/png"), ok, CodeBadRequest, HeaderContentType},
		{"payload", nil, bytes.Repeat([]byte("x"), 1<<20+1), CodePayloadTooLarge, "limit 1048576"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, bad := durable(tt.header, tt.payload)
			if bad == nil || bad.Code != tt.code || !strings.Contains(bad.Message, tt.names) {
				t.Errorf("error = %v, want %s that names %q", bad, tt.code, tt.names)
			}
			if !ValidID(r.ID) || r.Reply == "" {
				t.Errorf("cannot be answered: %+v", r)
			}
		})
	}
}

// TestInputsAsTheyAreMeant writes every way to put an input down and reads it
// again: ids need no second word that they are some, and both at once are refused.
func TestInputsAsTheyAreMeant(t *testing.T) {
	t.Parallel()
	ids := []int32{1, 70000}
	for name, tt := range map[string]struct {
		in   Input
		want *Input // nil: refused
	}{
		"text":             {Input{Text: "x"}, &Input{Text: "x"}},
		"empty text":       {Input{}, &Input{}},
		"ids":              {Input{IDs: ids}, &Input{IDs: ids, IsIDs: true}},
		"ids, and said so": {Input{IDs: ids, IsIDs: true}, &Input{IDs: ids, IsIDs: true}},
		"no ids":           {Input{IsIDs: true}, &Input{IDs: []int32{}, IsIDs: true}},
		"both":             {Input{Text: "x", IDs: ids}, nil},
		"text as ids":      {Input{Text: "x", IsIDs: true}, nil},
	} {
		for enc, contentType := range map[Encoding]string{MsgPack: TypeMsgPack, JSON: TypeJSON} {
			b, err := encodeRequest(enc, &tt.in, &Params{})
			if tt.want == nil {
				var bad *Error
				if !errors.As(err, &bad) || bad.Code != CodeBadRequest || !strings.Contains(bad.Message, "input") {
					t.Errorf("%s, encoding %d: %v", name, enc, err)
				}
				continue
			}
			r, bad := durable(nats.Header{HeaderContentType: {contentType}}, b)
			if err != nil || bad != nil || !cmp.Equal(r.Input, *tt.want) {
				t.Errorf("%s, encoding %d: %+v, %v, %v", name, enc, r.Input, err, bad)
			}
		}
	}
}

// TestNotFiniteParams wants a parameter that no encoding can carry to be
// refused before it is sent.
func TestNotFiniteParams(t *testing.T) {
	t.Parallel()
	for _, enc := range []Encoding{MsgPack, JSON} {
		for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
			for field, p := range map[string]*Params{"temperature": {Temperature: &v}, "top_p": {TopP: &v}} {
				_, err := encodeRequest(enc, &Input{Text: "x"}, p)
				var bad *Error
				if !errors.As(err, &bad) || bad.Code != CodeBadRequest || !strings.Contains(bad.Message, field) {
					t.Errorf("encoding %d, %s %v: %v", enc, field, v, err)
				}
			}
		}
	}
}

// TestDurableReply wants every request to be answerable whose client token can
// be part of a reply subject.
func TestDurableReply(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 65)
	tests := []struct{ client, id, reply, names string }{
		{"me", "abcdefgh", "infer.out.me.abcdefgh", ""},
		{"me", "", "infer.out.me.s0000000012", ""},
		{"me", "no good!", "infer.out.me.s0000000012", HeaderID},
		{"m@e", "", "infer.out.m@e.s0000000012", "client"},
		{"m@e", "no good!", "infer.out.m@e.s0000000012", "client"},
		{"m@e", "abcdefgh", "infer.out.m@e.abcdefgh", "client"},
		{"grün", "", "infer.out.grün.s0000000012", "client"},
		{long, "", "infer.out." + long + ".s0000000012", "client"},
		{strings.Repeat("x", 600), "", "", "client"},
		{"*", "", "", "client"},
		{">", "", "", "client"},
		{"a b", "", "", "client"},
		{"", "", "", "client"},
	}
	now := time.Now()
	for _, tt := range tests {
		h := nats.Header{HeaderID: {tt.id}}
		r, bad := newTestDecoder().durable(message{subject: "infer.req.m.std." + tt.client, header: h, payload: []byte("x")}, 12, now, now)
		if r.Reply != tt.reply || !ValidID(r.ID) || (bad == nil) != (tt.names == "") {
			t.Errorf("client %.20q, id %q: reply %.80q, %v", tt.client, tt.id, r.Reply, bad)
		}
		if bad != nil && (bad.Code != CodeBadRequest || !strings.Contains(bad.Message, tt.names) || len(bad.Message) > 200) {
			t.Errorf("client %.20q, id %q: %v, want %s", tt.client, tt.id, bad, tt.names)
		}
	}
}

func TestCoreReply(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ reply, client string }{
		"_INBOX.abc.1":            {"_INBOX.abc.1", ""},
		"infer.out.c1.abcdefgh":   {"infer.out.c1.abcdefgh", "c1"},
		"my.inbox":                {"my.inbox", ""},
		"":                        {"", ""},
		"$JS.API.STREAM.DELETE.X": {"", ""},
		"infer.req.m.std.me":      {"", ""},
		"infer.out.c1":            {"", ""},
		"a.*":                     {"", ""},
		"a b":                     {"", ""},
	}
	for reply, want := range tests {
		r, bad := newTestDecoder().core("m", message{subject: "infer.rt.m", reply: reply, payload: []byte("x")}, time.Now())
		if r.Reply != want.reply || r.Client != want.client || (bad == nil) != (want.reply != "") || !ValidID(r.ID) {
			t.Errorf("%q: %+v, %v", reply, r, bad)
		}
	}
}

// bombs are payloads that make careless decoders allocate or recurse without
// bound.
func bombs() map[string][]byte {
	return map[string][]byte{
		"nested arrays":      bytes.Repeat([]byte{0x91}, 2_000_000),
		"nested maps":        append([]byte{0x81}, bytes.Repeat([]byte{0xa1, 'a', 0x81}, 300_000)...),
		"nested in a map":    append([]byte{0x81, 0xa5, 'i', 'n', 'p', 'u', 't'}, bytes.Repeat([]byte{0x91}, 1_000_000)...),
		"array32":            {0xdd, 4, 0, 0, 0},
		"array32 in a map":   {0x81, 0xa5, 'i', 'n', 'p', 'u', 't', 0xdd, 4, 0, 0, 0},
		"map32":              {0xdf, 0xff, 0xff, 0xff, 0xff},
		"bin32 in a map":     {0x81, 0xa5, 'i', 'n', 'p', 'u', 't', 0xc6, 0x10, 0, 0, 0},
		"str32 in a map":     {0x81, 0xa5, 'i', 'n', 'p', 'u', 't', 0xdb, 0xff, 0xff, 0xff, 0xff},
		"ext32 in a map":     {0x81, 0xa4, 'm', 'e', 't', 'a', 0xc9, 0xff, 0xff, 0xff, 0xff, 1},
		"many elements":      append([]byte{0x81, 0xa5, 'i', 'n', 'p', 'u', 't', 0xdd, 0, 0x0e, 0, 0}, make([]byte, 0xe0000)...),
		"many empty arrays":  append([]byte{0x81, 0xa5, 's', 't', 'o', 'p', 's', 0xdd, 0, 0x0e, 0, 0}, bytes.Repeat([]byte{0x90}, 0xe0000)...),
		"json arrays":        append([]byte(`{"input":`), bytes.Repeat([]byte{'['}, 1_000_000)...),
		"json objects":       bytes.Repeat([]byte(`{"a":`), 200_000),
		"json many elements": append(append([]byte(`{"input":[0`), bytes.Repeat([]byte(",0"), 500_000)...), "]}"...),
	}
}

func TestBombs(t *testing.T) { // not parallel: it measures allocation
	for name, payload := range bombs() {
		t.Run(name, func(t *testing.T) {
			d := newTestDecoder()
			d.maxPayload = 4 << 20 // let all of it through to the scan
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			for _, contentType := range []string{"", TypeMsgPack, TypeJSON} {
				h := nats.Header{HeaderContentType: {contentType}}
				if _, bad := d.durable(message{subject: "infer.req.m.std.me", header: h, payload: payload}, 1, start, start); bad == nil &&
					contentType != "" {
					t.Errorf("%q: accepted", contentType)
				}
			}
			if _, err := DecodeFrame(payload); err == nil {
				t.Error("accepted as a frame")
			}
			if err := Meta(payload).check(); err == nil {
				t.Error("accepted as meta")
			}
			runtime.ReadMemStats(&after)
			if grown := after.TotalAlloc - before.TotalAlloc; grown > 8<<20 {
				t.Errorf("%d bytes allocated for %d", grown, len(payload))
			}
		})
	}
}

func TestScanBounds(t *testing.T) {
	t.Parallel()
	nested := func(n int) []byte { return append(bytes.Repeat([]byte{0x91}, n), 0xc0) }
	if err := scanMsgPack(nested(maxDepth)); err != nil {
		t.Errorf("depth %d: %v", maxDepth, err)
	}
	if err := scanMsgPack(nested(maxDepth + 1)); err == nil {
		t.Errorf("depth %d accepted", maxDepth+1)
	}
	brackets := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	if err := scanJSON(brackets(maxDepth)); err != nil {
		t.Errorf("json depth %d: %v", maxDepth, err)
	}
	if err := scanJSON(brackets(maxDepth + 1)); err == nil {
		t.Errorf("json depth %d accepted", maxDepth+1)
	}
}

func FuzzDecodeRequest(f *testing.F) {
	f.Add("", []byte("text"))
	f.Add(TypeJSON, []byte(`{"input":"x","max_tokens":3,"ramps":true,"stop":["a"],"meta":{"a":[1]}}`))
	f.Add(TypeMsgPack, pack(f, map[string]any{"input": []int{1, 2}, "seed": 3, "meta": map[string]any{"a": 1.5}}))
	f.Add("", pack(f, map[string]any{"input": []byte{1, 0, 0, 0}, "temperature": float32(0.5), "x": nil}))
	for _, b := range bombs() {
		f.Add("", b[:min(len(b), 64)])
	}
	f.Fuzz(func(t *testing.T, contentType string, payload []byte) {
		var r *Request
		var bad *Error
		boundedBy(t, payloadFactor, len(contentType)+len(payload), func() {
			r, bad = durable(nats.Header{HeaderContentType: {contentType}}, payload)
		})
		if !ValidID(r.ID) || r.Reply == "" {
			t.Fatalf("cannot be answered: %+v", r)
		}
		if bad != nil {
			checkShort(t, bad)
			return
		}
		// What was understood encodes to something that means the same.
		again, err := encodeRequest(r.Encoding, &r.Input, &r.Params)
		if err != nil {
			t.Fatal(err)
		}
		typ := TypeMsgPack
		if r.Encoding == JSON {
			typ = TypeJSON
		}
		r2, bad := durable(nats.Header{HeaderContentType: {typ}}, again)
		if bad != nil {
			t.Fatalf("own encoding refused: %v", bad)
		}
		if diff := cmp.Diff(r.Params, r2.Params); diff != "" || !cmp.Equal(r.Input, r2.Input) {
			t.Fatal(diff)
		}
	})
}

func FuzzSubjectsAndHeaders(f *testing.F) {
	f.Add("infer.req.m.std.me", "infer.out.me.abcdefgh", "abcdefgh", "123", "stream", "1")
	f.Add("infer.req...", "$JS.API.x", "", "-1", "resume", "\x00")
	f.Fuzz(func(t *testing.T, subject, reply, id, deadline, mode, version string) {
		h := nats.Header{HeaderID: {id}, HeaderDeadline: {deadline}, HeaderMode: {mode}, HeaderVersion: {version}, HeaderReplyTo: {reply}}
		now := time.UnixMilli(1000)
		d := newTestDecoder()
		var r *Request
		var bad *Error
		boundedBy(t, payloadFactor, len(subject)+len(reply)+len(id)+len(deadline)+len(mode)+len(version), func() {
			r, bad = d.durable(message{subject: subject, header: h, payload: []byte("x")}, 1, now, now)
		})
		if bad == nil && (!ValidModel(r.Model) || !ValidClient(r.Client) || !r.Priority.valid() || r.Reply == "") {
			t.Fatalf("accepted %+v", r)
		}
		if bad != nil {
			checkShort(t, bad)
		}
		if r.Reply != "" && !publishable(r.Reply) {
			t.Fatalf("reply %q", r.Reply)
		}
		if r, _ := d.core("m", message{reply: reply, header: h, payload: []byte("x")}, now); strings.HasPrefix(r.Reply, "$") ||
			r.Reply != "" && !publishable(r.Reply) {
			t.Fatalf("reply %q", r.Reply)
		}
	})
}
