package broker_test

import (
	"strings"
	"testing"

	"github.com/cellmq/cellmq/broker"
)

func TestRedactURL(t *testing.T) {
	t.Parallel()
	for urls, want := range map[string]string{
		"nats://h:4222":                       "nats://h:4222",
		"nats://u:s3cret@h:4222":              "nats://h:4222",
		"u:s3cret@h":                          "nats://h",
		"tls://a:s3cret@h:1,nats://b,t0ken@c": "tls://h:1,nats://b,nats://c",
		"nats://u:s3cr@et@h:4222":             "nats://h:4222",
	} {
		if got := broker.RedactURL(urls); got != want {
			t.Errorf("%q: %q, want %q", urls, got, want)
		}
	}
}

// TestErrorsKeepPasswords connects to addresses that fail in every way.
func TestErrorsKeepPasswords(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"nats://u:s3cret@127.0.0.1:1", "nats://u:s3cret@[::1", "nats://u:s3cret@h:x", "nats://u:s3cret%zz@h"} {
		if _, err := broker.Dial(t.Context(), url, "c", nil); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("dial %s: %v", url, err)
		}
		if _, err := broker.Connect(t.Context(), broker.Config{URL: url}); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("connect %s: %v", url, err)
		}
	}
}
