package target

import (
	"context"
	"fmt"

	"github.com/kelseyhightower/envconfig"
	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
)

// Settings are how a server is reached: those of the program's own variables that
// matter to a client, CELLMQ_NATS_URL and the others.
type Settings struct {
	NatsURL         string `split_words:"true"`
	NatsCredentials string `split_words:"true"`
	NatsNkey        string `split_words:"true"`
	NatsCA          string `envconfig:"NATS_CA"`
	NatsCert        string `split_words:"true"`
	NatsKey         string `split_words:"true"`
	SubjectPrefix   string `split_words:"true" default:"infer"`
}

// FromEnv reads the settings from the environment.
func FromEnv() (Settings, error) {
	var s Settings
	if err := envconfig.Process("CELLMQ", &s); err != nil {
		return s, fmt.Errorf("read settings: %w", err)
	}
	return s, nil
}

// Connect connects to the server at URL. With a client's name its inboxes are
// among the subjects that are its own, as permissions may demand. More options are
// added to those of the settings. The caller closes the connection.
func (s *Settings) Connect(ctx context.Context, url, client string, options ...nats.Option) (*nats.Conn, error) {
	if s.NatsCredentials != "" {
		options = append(options, nats.UserCredentials(s.NatsCredentials))
	}
	if s.NatsNkey != "" {
		key, err := nats.NkeyOptionFromSeed(s.NatsNkey)
		if err != nil {
			return nil, fmt.Errorf("CELLMQ_NATS_NKEY: %w", err)
		}
		options = append(options, key)
	}
	if s.NatsCA != "" {
		options = append(options, nats.RootCAs(s.NatsCA))
	}
	if s.NatsCert != "" {
		options = append(options, nats.ClientCert(s.NatsCert, s.NatsKey))
	}
	if client != "" {
		options = append(options, broker.OwnInbox(s.SubjectPrefix, client))
	}
	nc, err := broker.Dial(ctx, url, "cellmq loadtest", nil, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", broker.RedactURL(url), err)
	}
	return nc, nil
}
