package broker

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// The headers of stored records.
const (
	HeaderLease   = "Infer-Lease"   // of a final: <worker>/<epoch>/<attempt>#<sequence>
	HeaderRequest = "Infer-Request" // of finals and states: 16 hexadecimal digits of the request's hash
	HeaderExcused = "Infer-Excused" // of states and letters
	HeaderDigest  = "Infer-Digest"  // of states and letters
)

const (
	headerExpectedLast = "Nats-Expected-Last-Subject-Sequence"
	maxName            = 256 // bytes of a worker or digest
	maxCount           = 1<<31 - 1
)

// The subjects and names of the stores.
func (s subjects) final(client, id string) string { return string(s) + ".final." + client + "." + id }
func (s subjects) state(client, id string) string { return string(s) + ".state." + client + "." + id }
func (s subjects) letter(model string) string     { return string(s) + ".dlq." + model }

func (s *StreamConfig) finals() string     { return s.Name + "_FINAL" }
func (s *StreamConfig) states() string     { return s.Name + "_STATE" }
func (s *StreamConfig) out() string        { return s.Name + "_OUT" }
func (s *StreamConfig) letters() string    { return s.Name + "_DLQ" }
func (s *StreamConfig) advisories() string { return s.Name + "_ADVISORY" }

// ownerOf takes client and id out of the subject of a final or a state.
func (s subjects) ownerOf(kind, subject string) (client, id string, err error) {
	rest, ok := strings.CutPrefix(subject, string(s)+kind)
	client, id, cut := strings.Cut(rest, ".")
	if !ok || !cut {
		return "", "", badRecord("subject %q", clip(subject))
	}
	return client, id, checkOwner(client, id)
}

func checkOwner(client, id string) error {
	if !ValidClient(client) || !ValidID(id) {
		return badRecord("client %q, id %q", clip(client), clip(id))
	}
	return nil
}

func badRecord(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrBadRecord}, args...)...)
}

func formatHash(h uint64) string { return fmt.Sprintf("%016x", h) }

func hashOf(h nats.Header) (uint64, error) {
	text := headerValue(h, HeaderRequest)
	n, err := strconv.ParseUint(text, 16, 64)
	if err != nil || len(text) != 16 {
		return 0, badRecord("%s %q", HeaderRequest, clip(text))
	}
	return n, nil
}

// countOf reads a header that counts; a missing one is 0.
func countOf(h nats.Header, name string) (int, error) {
	text := headerValue(h, name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, badRecord("%s %q", name, clip(text))
	}
	return int(n), nil
}

// checkName checks a text that goes into a header.
func checkName(what, s string) error {
	if len(s) > maxName || !printable(s) {
		return badRecord("%s %q", what, clip(s))
	}
	return nil
}
