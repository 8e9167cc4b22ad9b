package broker_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

// muteDialer makes connections that can go mute: what is written seems to go out
// and is lost, as in a server that dies before it has passed it on.
type muteDialer struct {
	mute atomic.Bool
	last atomic.Pointer[muteConn]
}

type muteConn struct {
	net.Conn
	mute *atomic.Bool
}

func (d *muteDialer) Dial(network, address string) (net.Conn, error) {
	inner, err := net.DialTimeout(network, address, time.Second)
	if err != nil {
		return nil, err
	}
	c := &muteConn{Conn: inner, mute: &d.mute}
	d.last.Store(c)
	return c, nil
}

func (c *muteConn) Write(b []byte) (int, error) {
	if c.mute.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// swallow loses what send sends, and nothing that was sent before or is after.
func (d *muteDialer) swallow(t *testing.T, nc *nats.Conn, send func() error) {
	t.Helper()
	if err := nc.Flush(); err != nil {
		t.Error(err)
	}
	d.mute.Store(true)
	defer d.mute.Store(false)
	if err := send(); err != nil {
		t.Error(err)
	}
	for { // the library writes on a goroutine of its own
		if n, err := nc.Buffered(); err != nil || n == 0 {
			return
		}
		<-time.After(time.Millisecond)
	}
}

// forgetful is a worker whose server takes its final frames and passes none of
// them on, before it is gone.
func forgetful(t *testing.T, url string, replicas int) (*broker.Conn, *muteDialer) {
	t.Helper()
	d := &muteDialer{}
	conn, err := broker.Connect(t.Context(), broker.Config{
		URL: url, RetryConnect: true, AckWait: time.Minute, Stream: broker.StreamConfig{Replicas: replicas},
		Options: []nats.Option{nats.SetCustomDialer(d)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.NATS().Close)
	return conn, d
}

// serveForgotten runs the worker; each settled request of which the final was
// swallowed is told.
func serveForgotten(t *testing.T, conn *broker.Conn, d *muteDialer) <-chan string {
	t.Helper()
	settled, store := make(chan string, 8), finals(t, conn)
	startWorker(t, conn, []string{"echo"}, 1, func(v *broker.Delivery, s *broker.TokenStream) {
		defer v.Done()
		err := keepAndSend(store, v, s, func(e broker.Encoded) error {
			d.swallow(t, conn.NATS(), func() error { return s.SendTerminal(e) })
			return nil
		})
		if err == nil {
			err = v.Lease.Settle()
		}
		if err == nil {
			err = conn.NATS().Flush()
		}
		if err != nil {
			t.Errorf("serve: %v", err)
		}
		settled <- v.Request.ID
	})
	return settled
}

// TestFinalLostWithTheConnection loses a final frame on the worker's side, with
// its connection, of a client whose own connection is well: the frame comes again
// when the worker is back. The request has left the queue, and nobody asks.
func TestFinalLostWithTheConnection(t *testing.T) {
	t.Parallel()
	server := brokertest.Server(t)
	conn, d := forgetful(t, server.URL(), 1)
	settled := serveForgotten(t, conn, d)
	c := newClient(t, server, broker.ClientConfig{})
	for _, mode := range []broker.Mode{broker.ModeStream, broker.ModeFinal, broker.ModeResume} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		s, err := c.Request(ctx, "echo", broker.RequestOptions{Input: broker.Input{Text: "abc"}, Mode: mode})
		if err != nil {
			t.Fatal(err)
		}
		<-settled
		if err := d.last.Load().Close(); err != nil {
			t.Fatal(err)
		}
		if f, err := s.Final(); err != nil || f.Text != "abc" {
			t.Errorf("%s: %q, %v", mode, f.Text, err)
		}
		cancel()
	}
}

// TestFinalLostWithTheWorkersServer is the same in a cluster, whose server with
// the worker is killed; the client is on another one.
func TestFinalLostWithTheWorkersServer(t *testing.T) {
	t.Parallel()
	cluster := brokertest.Cluster(t, 3)
	conn, d := forgetful(t, cluster.URL(), 3)
	settled := serveForgotten(t, conn, d)
	node := nodeOf(t, cluster, conn.NATS())
	ctx, cancel := context.WithTimeout(t.Context(), electionWait)
	defer cancel()
	nc, err := broker.Dial(ctx, cluster.NodeURL((node+1)%cluster.Size()), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	c, err := broker.NewClient(nc, broker.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.Request(ctx, "echo", broker.RequestOptions{Input: broker.Input{Text: "abc"}, Mode: broker.ModeFinal})
	if err != nil {
		t.Fatal(err)
	}
	<-settled
	before := conn.NATS().Stats().Reconnects
	cluster.Kill(node)
	eventually(t, "the worker is on another server", func() bool { return conn.Connected() && conn.NATS().Stats().Reconnects > before })
	back := time.Now()
	f, err := s.Final()
	if took := time.Since(back); err != nil || f.Text != "abc" || took > 5*time.Second {
		t.Errorf("%q, %v after %v", f.Text, err, took)
	}
	if nc.Stats().Reconnects != 0 {
		t.Error("the client's connection was lost, which proves nothing")
	}
	select {
	case id := <-settled:
		t.Errorf("%s was run twice", id)
	default:
	}
}

// nodeOf returns the server of the cluster that nc is connected to.
func nodeOf(t *testing.T, cluster *brokertest.ClusterT, nc *nats.Conn) int {
	t.Helper()
	for i := range cluster.Size() {
		if cluster.NodeURL(i) == nc.ConnectedUrl() {
			return i
		}
	}
	t.Fatalf("connected to %s", nc.ConnectedUrl())
	return -1
}
