package brokertest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/cellmq/cellmq/broker"
)

// SecureT is a server with one of the configurations in deploy that have users, and
// keys of these.
type SecureT struct {
	*broker.Server

	// Seeds are the files with the users' seeds, by the users: worker, operator,
	// c1 and c2.
	Seeds map[string]string
	// ConfigFile is the configuration, with the keys.
	ConfigFile string
}

// SecureConfig writes deploy/nats-secure.conf with keys of its own in place of the
// examples, and nothing else changed, into the test's directory, and the seeds
// beside it.
func SecureConfig(tb testing.TB) *SecureT {
	tb.Helper()
	return withKeys(tb, "nats-secure.conf")
}

// withKeys is [SecureConfig] of any file in deploy with the same users.
func withKeys(tb testing.TB, name string) *SecureT {
	tb.Helper()
	example, err := os.ReadFile(Deployed(tb, name))
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	s := &SecureT{Seeds: map[string]string{}, ConfigFile: filepath.Join(dir, "nats.conf")}
	key := regexp.MustCompile(`(?m)^([A-Z0-9]+)_KEY: (U[A-Z2-7]{55})$`)
	config := key.ReplaceAllStringFunc(string(example), func(line string) string {
		name, _, _ := strings.Cut(line, "_KEY: ")
		seed, public := newKey(tb)
		user := strings.ToLower(name)
		s.Seeds[user] = filepath.Join(dir, user+".nk")
		if err := os.WriteFile(s.Seeds[user], seed, 0o600); err != nil {
			tb.Fatal(err)
		}
		return name + "_KEY: " + public
	})
	if len(s.Seeds) != 4 {
		tb.Fatalf("the configuration has the users %v", s.Seeds)
	}
	if err := os.WriteFile(s.ConfigFile, []byte(config), 0o600); err != nil {
		tb.Fatal(err)
	}
	return s
}

// Secure starts a server with that configuration, which stops when the test
// ends.
func Secure(tb testing.TB) *SecureT {
	tb.Helper()
	return SecureConfig(tb).start(tb)
}

// Accounts is [Secure] with deploy/nats-accounts.conf.
func Accounts(tb testing.TB) *SecureT {
	tb.Helper()
	return withKeys(tb, "nats-accounts.conf").start(tb)
}

func (s *SecureT) start(tb testing.TB) *SecureT {
	tb.Helper()
	var err error
	s.Server, err = broker.StartServer(tb.Context(), broker.ServerConfig{DataDir: tb.TempDir(), ConfigFile: s.ConfigFile})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Shutdown)
	return s
}

// Key is the option that authenticates a user.
func (s *SecureT) Key(tb testing.TB, user string) nats.Option {
	tb.Helper()
	o, err := nats.NkeyOptionFromSeed(s.Seeds[user])
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

func newKey(tb testing.TB) (seed []byte, public string) {
	tb.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		tb.Fatal(err)
	}
	if seed, err = pair.Seed(); err != nil {
		tb.Fatal(err)
	}
	if public, err = pair.PublicKey(); err != nil {
		tb.Fatal(err)
	}
	return seed, public
}

// Deployed is the path of a file in deploy.
func Deployed(tb testing.TB, name string) string {
	tb.Helper()
	dir, err := os.Getwd()
	if err != nil {
		tb.Fatal(err)
	}
	for {
		file := filepath.Join(dir, "deploy", name)
		if _, err := os.Stat(file); err == nil {
			return file
		}
		up := filepath.Dir(dir)
		if up == dir {
			tb.Fatalf("no deploy/%s above the test", name)
		}
		dir = up
	}
}
