package broker

import (
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"
)

// grow keeps the bounds of a stream of records where they are larger than the
// configured ones: workers may be configured differently, and a smaller bound
// drops records that others have promised to keep. A stream without a bound gets
// the configured one.
func (s *stream) grow(current, cfg *jetstream.StreamConfig) {
	if s.records {
		cfg.MaxBytes = larger(current.MaxBytes, cfg.MaxBytes)
		cfg.MaxMsgs = larger(current.MaxMsgs, cfg.MaxMsgs)
	}
}

// larger is the larger bound, want when the stream has none or want is none.
func larger(current, want int64) int64 {
	if current <= 0 || want <= 0 {
		return want
	}
	return max(current, want)
}

// reaches reports whether a stream has at least the bounds that it should have.
func (s *stream) reaches(has, want *jetstream.StreamConfig) bool {
	return !s.records || larger(has.MaxBytes, want.MaxBytes) == has.MaxBytes && larger(has.MaxMsgs, want.MaxMsgs) == has.MaxMsgs
}

// tellLarger says when a stream keeps bounds that are larger than the configured ones.
func (c *Conn) tellLarger(s *stream, current *jetstream.StreamConfig) {
	var want jetstream.StreamConfig
	s.limits(&want)
	if !s.records || s.reaches(&want, current) {
		return
	}
	c.log.Warn("stream is larger than configured, and stays", slog.String("stream", s.fixed.Name),
		slog.Int64("max_bytes", current.MaxBytes), slog.Int64("configured_bytes", want.MaxBytes),
		slog.Int64("max_messages", current.MaxMsgs), slog.Int64("configured_messages", want.MaxMsgs))
}
