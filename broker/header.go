package broker

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// The headers of a request.
const (
	HeaderID          = "Nats-Msg-Id"
	HeaderTTL         = "Nats-TTL"
	HeaderDeadline    = "Infer-Deadline"
	HeaderTimeout     = "Infer-Timeout"
	HeaderMode        = "Infer-Mode"
	HeaderOnGone      = "Infer-On-Gone"
	HeaderVersion     = "Infer-Version"
	HeaderReplyTo     = "Infer-Reply-To"
	HeaderContentType = "Content-Type"
	HeaderTraceParent = "traceparent"
	HeaderTraceState  = "tracestate"
)

// HeaderStored marks a frame that answers a resume request and was read back
// from a stream: it is of whatever lease, and counts all the same.
const HeaderStored = "Infer-Stored"

// The content types of a payload.
const (
	TypeMsgPack = "application/msgpack"
	TypeJSON    = "application/json"
	TypeText    = "text/plain"
)

const (
	maxVersion     = 64
	maxTraceParent = 128
	maxTraceState  = 512
	maxDeadlineMS  = 1 << 53                // the largest integer that every JSON reader keeps
	maxTimeoutMS   = 365 * 24 * 3600 * 1000 // longer is as good as none
)

// headerValue finds a header whatever the case of its name, since not every
// client library keeps it.
func headerValue(h nats.Header, name string) string {
	if v, ok := h[name]; ok {
		if len(v) > 0 {
			return v[0]
		}
		return ""
	}
	for k, v := range h {
		if len(v) > 0 && strings.EqualFold(k, name) {
			return v[0]
		}
	}
	return ""
}

// readHeaders fills in what the headers other than id, reply and content type
// say. It reads them all and returns the first error.
func readHeaders(r *Request, h nats.Header, now time.Time) *Error {
	r.Mode, r.OnGone = ModeStream, OnGoneCancel
	if len(h) == 0 {
		return nil
	}
	if t := headerValue(h, HeaderTraceParent); len(t) <= maxTraceParent && printable(t) {
		r.TraceParent = t
		if s := headerValue(h, HeaderTraceState); len(s) <= maxTraceState && printable(s) {
			r.TraceState = s
		}
	}
	err := readDeadline(r, headerValue(h, HeaderDeadline), headerValue(h, HeaderTimeout), now)
	for _, e := range []*Error{
		readMode(r, headerValue(h, HeaderMode)),
		readOnGone(r, headerValue(h, HeaderOnGone)),
		readVersion(r, headerValue(h, HeaderVersion)),
	} {
		if err == nil {
			err = e
		}
	}
	return err
}

// readDeadline reads the budget as a time and as a duration. The duration counts
// from publication, by the server's clock, and wins: the client's may be wrong.
func readDeadline(r *Request, deadline, timeout string, now time.Time) *Error {
	switch {
	case timeout != "":
		ms, err := milliseconds(HeaderTimeout, timeout)
		if err != nil {
			return err
		}
		r.Deadline = r.Published.Add(time.Duration(min(ms, maxTimeoutMS)) * time.Millisecond)
	case deadline != "":
		ms, err := milliseconds(HeaderDeadline, deadline)
		if err != nil {
			return err
		}
		r.Deadline = time.UnixMilli(ms)
	default:
		return nil
	}
	if !now.Before(r.Deadline) {
		return NewError(CodeDeadlineExceeded, fmt.Sprintf("deadline passed %v ago", now.Sub(r.Deadline).Round(time.Millisecond)))
	}
	return nil
}

func milliseconds(header, v string) (int64, *Error) {
	ms, err := strconv.ParseInt(v, 10, 64)
	if err != nil || ms <= 0 || ms > maxDeadlineMS {
		return 0, badRequest("%s %q: not a positive number of milliseconds", header, clip(v))
	}
	return ms, nil
}

func readMode(r *Request, v string) *Error {
	switch Mode(v) {
	case "", ModeStream:
	case ModeFinal:
		r.Mode = ModeFinal
	case ModeResume:
		if !r.Durable {
			return NewError(CodeUnsupportedParameter, HeaderMode+" resume: only durable requests are kept")
		}
		r.Mode = ModeResume
	default:
		modes := "stream or final"
		if r.Durable {
			modes = "stream, final or resume"
		}
		return badRequest("%s %q: not %s", HeaderMode, clip(v), modes)
	}
	return nil
}

func readOnGone(r *Request, v string) *Error {
	switch OnGone(v) {
	case "", OnGoneCancel:
	case OnGoneFinish:
		r.OnGone = OnGoneFinish
	default:
		return badRequest("%s %q: not cancel or finish", HeaderOnGone, clip(v))
	}
	return nil
}

func readVersion(r *Request, v string) *Error {
	if len(v) > maxVersion || !printable(v) {
		return badRequest("%s: not up to %d printable characters", HeaderVersion, maxVersion)
	}
	r.Version = v
	return nil
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// clip shortens a client's text for an error message.
func clip(s string) string {
	const longest = 40
	if len(s) <= longest {
		return s
	}
	return strings.ToValidUTF8(s[:longest], "") + "..."
}
