package worker_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
	"github.com/cellmq/cellmq/worker"
)

// authority signs certificates.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority makes one; its certificate is in ca.pem of its directory.
func newAuthority(tb testing.TB) *authority {
	tb.Helper()
	a := &authority{dir: tb.TempDir()}
	a.cert, a.key = a.sign(tb, "ca", &x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

// file is a certificate, or a key when name says so.
func (a *authority) file(name string) string { return filepath.Join(a.dir, name+".pem") }

// sign makes a certificate and its key, <name>.pem and <name>-key.pem.
func (a *authority) sign(tb testing.TB, name string, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	template.SerialNumber, template.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		tb.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name: {Type: "CERTIFICATE", Bytes: der}, name + "-key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(a.file(file), pem.EncodeToMemory(block), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return cert, key
}

// tlsServer wants certificates of its own authority from everybody.
func tlsServer(t *testing.T) (*broker.Server, *authority) {
	t.Helper()
	a := newAuthority(t)
	a.sign(t, "server", &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	a.sign(t, "client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	config := filepath.Join(a.dir, "nats.conf")
	tls := fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }", a.file("server"), a.file("server-key"), a.file("ca"))
	if err := os.WriteFile(config, []byte(tls), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := broker.StartServer(t.Context(), broker.ServerConfig{DataDir: t.TempDir(), ConfigFile: config})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s, a
}

// TestTLS serves over TLS, with certificates of both sides, and wants neither
// side to take another authority's.
func TestTLS(t *testing.T) {
	t.Parallel()
	server, ours := tlsServer(t)
	if !strings.HasPrefix(server.URL(), "tls://") {
		t.Fatalf("url %s", server.URL())
	}
	theirs := newAuthority(t)
	theirs.sign(t, "client", &x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	set := func(ca, client *authority) worker.BrokerConfig {
		c := worker.BrokerConfig{}
		if ca != nil {
			c.NatsCA = ca.file("ca")
		}
		if client != nil {
			c.NatsCert, c.NatsKey = client.file("client"), client.file("client-key")
		}
		return c
	}
	dial := func(c worker.BrokerConfig) (*nats.Conn, error) {
		options, err := c.NatsOptions()
		if err != nil {
			t.Fatal(err)
		}
		return broker.Dial(t.Context(), server.URL(), "test", nil, options...)
	}
	for _, tt := range []struct {
		name     string
		cfg      worker.BrokerConfig
		serverIs bool // what is wrong is the server's certificate
	}{
		{"wrong authority", set(theirs, ours), true},
		{"authorities of the system", set(nil, ours), true},
		{"no certificate", set(ours, nil), false},
		{"another's certificate", set(ours, theirs), false},
	} {
		nc, err := dial(tt.cfg)
		if err == nil {
			nc.Close()
			t.Errorf("%s: connected", tt.name)
		}
		var unknown x509.UnknownAuthorityError
		if errors.As(err, &unknown) != tt.serverIs {
			t.Errorf("%s: %v", tt.name, err)
		}
	}

	right := set(ours, ours)
	w := start(t, server, worker.Deps{}, func(c *worker.Config) {
		c.NatsCA, c.NatsCert, c.NatsKey = right.NatsCA, right.NatsCert, right.NatsKey
	})
	nc, err := dial(right)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if _, err := nc.TLSConnectionState(); err != nil {
		t.Errorf("not encrypted: %v", err)
	}
	out := subscribe(t, nc, "infer.out.me.*")
	publish(t, nc, "infer.req.g2p-en.std.me", "", []byte("hello"))
	if f := lastFrame(t, out); f.Text != "HH EH1 L OW0" {
		t.Errorf("got %+v of %s", f, w.Name())
	}
}

// TestUnreadableFiles wants the variable named whose file cannot be used.
func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]worker.BrokerConfig{
		"NKEY": {NatsNkey: "/none"}, "CA": {NatsCA: "/none"}, "CERT": {NatsCert: "/none", NatsKey: "/none"},
	} {
		if _, err := c.NatsOptions(); err == nil || !strings.Contains(err.Error(), "CELLMQ_NATS_"+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSecureWorker serves with the example of a secure configuration, on a server
// of its own and on its embedded one.
func TestSecureWorker(t *testing.T) {
	t.Parallel()
	for _, embedded := range []bool{false, true} {
		t.Run(fmt.Sprintf("embedded %v", embedded), func(t *testing.T) {
			t.Parallel()
			config := brokertest.SecureConfig(t)
			dir, port := t.TempDir(), freePort(t)
			url := fmt.Sprintf("nats://127.0.0.1:%d", port)
			var server *broker.Server
			if !embedded {
				var err error
				server, err = broker.StartServer(t.Context(), broker.ServerConfig{DataDir: dir, Port: port, ConfigFile: config.ConfigFile})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(server.Shutdown)
			}
			w := start(t, nil, worker.Deps{}, func(c *worker.Config) {
				c.NatsNkey = config.Seeds["worker"]
				if embedded {
					c.EmbeddedConfig, c.DataDir, c.EmbeddedPort = config.ConfigFile, dir, port
				} else {
					c.NatsURL = url
				}
			})
			nc, err := broker.Dial(t.Context(), url, "c1", nil, config.Key(t, "c1"), broker.OwnInbox("infer", "c1"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(nc.Close)
			client, err := broker.NewClient(nc, broker.ClientConfig{Name: "c1"})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range []broker.RequestOptions{{}, {Realtime: true}, {Mode: broker.ModeResume}, {Mode: broker.ModeFinal}} {
				o.Input.Text = "hello"
				s, err := client.Request(t.Context(), "g2p-en", o)
				if err != nil {
					t.Fatal(err)
				}
				if f, err := s.Final(); err != nil || f.Text != "HH EH1 L OW0" {
					t.Errorf("%+v: %+v, %v", o, f, err)
				}
			}
			if err := client.Close(); err != nil {
				t.Error(err)
			}
			if status, body := get(t, w, "/readyz"); status != 200 {
				t.Errorf("not ready: %s", body)
			}
		})
	}
}

// TestReadinessNamesWhatIsDenied takes a subscription from the worker.
func TestReadinessNamesWhatIsDenied(t *testing.T) {
	t.Parallel()
	config := brokertest.SecureConfig(t)
	b, err := os.ReadFile(config.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config.ConfigFile, []byte(strings.Replace(string(b), `"infer.cancel.*", `, "", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	w := start(t, nil, worker.Deps{}, func(c *worker.Config) {
		c.NatsNkey, c.EmbeddedConfig, c.DataDir, c.EmbeddedPort = config.Seeds["worker"], config.ConfigFile, t.TempDir(), broker.PortNone
	})
	eventually(t, "the worker says what it lacks", func() bool {
		status, body := get(t, w, "/readyz")
		return status == 503 && strings.Contains(body, `subscribe to "infer.cancel.*"`)
	})
	if status, _ := get(t, w, "/healthz"); status != 200 {
		t.Errorf("health %d", status)
	}
}

func freePort(tb testing.TB) int {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() {
		if err := l.Close(); err != nil {
			tb.Error(err)
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}
