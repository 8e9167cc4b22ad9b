package brokertest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// nodeVariable makes a process a server of a cluster; its value is a node.
const nodeVariable = "BROKERTEST_NODE"

// ready is what a server says before the address of its monitor.
const ready = "brokertest: ready at "

// node is a server of a cluster.
type node struct {
	Name   string
	Port   int    // for clients
	Route  int    // port for the other servers
	Routes string // of all, comma separated; empty: the server is alone
	Dir    string
}

// Main makes the process a server of a cluster when [Cluster] has started it
// for that, and then does not return. A TestMain whose tests use Cluster begins
// with it.
func Main() {
	text := os.Getenv(nodeVariable)
	if text == "" {
		return
	}
	ExitWithTest()
	if err := serve(text); err != nil {
		fmt.Fprintln(os.Stderr, "brokertest:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (n *node) options() *server.Options {
	o := &server.Options{
		ServerName:             n.Name,
		Host:                   "127.0.0.1",
		Port:                   n.Port,
		HTTPHost:               "127.0.0.1",
		HTTPPort:               server.RANDOM_PORT,
		MaxPayload:             1 << 20,
		MaxPending:             32 << 20,
		WriteDeadline:          10 * time.Second,
		NoFastProducerStall:    true,
		NoSigs:                 true,
		JetStream:              true,
		StoreDir:               n.Dir,
		JetStreamMaxStore:      4 << 30,
		JetStreamMaxMemory:     1 << 30,
		DisableJetStreamBanner: true,
	}
	if n.Routes != "" {
		o.Cluster = server.ClusterOpts{Name: "brokertest", Host: "127.0.0.1", Port: n.Route, PoolSize: -1}
		o.Routes = server.RoutesFromStr(n.Routes)
	}
	return o
}

// serve runs a server until SIGTERM.
func serve(text string) error {
	var n node
	if err := json.Unmarshal([]byte(text), &n); err != nil {
		return fmt.Errorf("read node: %w", err)
	}
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM)
	srv, err := server.NewServer(n.options())
	if err != nil {
		return fmt.Errorf("make server: %w", err)
	}
	srv.SetLoggerV2(&stderrLog{}, false, false, false)
	srv.Start()
	if !srv.ReadyForConnections(patience) {
		return errors.New("server is not ready")
	}
	address := srv.MonitorAddr()
	if address == nil {
		return errors.New("monitor does not listen")
	}
	if _, err := fmt.Fprintf(os.Stdout, "%s%s\n", ready, address); err != nil {
		return fmt.Errorf("say that the server is ready: %w", err)
	}
	<-terminate
	srv.Shutdown()
	srv.WaitForShutdown()
	return nil
}

// stderrLog writes the server's warnings and errors to stderr.
type stderrLog struct{}

func (stderrLog) write(level, format string, v []any) {
	fmt.Fprintf(os.Stderr, "%s %s %s\n", time.Now().Format("15:04:05.000"), level, fmt.Sprintf(format, v...))
}

// Noticef drops notices.
func (stderrLog) Noticef(string, ...any) {}

// Warnf writes a warning.
func (l stderrLog) Warnf(format string, v ...any) { l.write("WRN", format, v) }

// Errorf writes an error.
func (l stderrLog) Errorf(format string, v ...any) { l.write("ERR", format, v) }

// Fatalf writes what the server cannot go on after, and ends the process.
func (l stderrLog) Fatalf(format string, v ...any) {
	l.write("FTL", format, v)
	os.Exit(1)
}

// Debugf drops what is not enabled.
func (stderrLog) Debugf(string, ...any) {}

// Tracef drops what is not enabled.
func (stderrLog) Tracef(string, ...any) {}
