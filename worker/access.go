package worker

import (
	"fmt"

	"github.com/nats-io/nats.go"
)

// NatsOptions are the options of a connection to the configured NATS server:
// who connects, and which certificates count. They are those of clients too. The
// error names the variable whose file cannot be used.
func (c BrokerConfig) NatsOptions() ([]nats.Option, error) {
	var options []nats.Option
	if c.NatsCredentials != "" {
		options = append(options, nats.UserCredentials(c.NatsCredentials))
	}
	if c.NatsNkey != "" {
		key, err := nats.NkeyOptionFromSeed(c.NatsNkey)
		if err != nil {
			return nil, fmt.Errorf("%s_NATS_NKEY: %w", EnvPrefix, err)
		}
		options = append(options, key)
	}
	for _, tls := range []struct {
		variable string
		set      bool
		option   nats.Option
	}{
		{"NATS_CA", c.NatsCA != "", nats.RootCAs(c.NatsCA)},
		{"NATS_CERT", c.NatsCert != "", nats.ClientCert(c.NatsCert, c.NatsKey)},
	} {
		if !tls.set {
			continue
		}
		if err := tls.option(&nats.Options{}); err != nil { // it reads the files
			return nil, fmt.Errorf("%s_%s: %w", EnvPrefix, tls.variable, err)
		}
		options = append(options, tls.option)
	}
	return options, nil
}
