package broker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

// discovered returns what all instances of the service say, n of them and no more.
func discovered(t *testing.T, nc *nats.Conn, n int) (out []micro.Info) {
	t.Helper()
	sub, err := nc.SubscribeSync(nats.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	if err := nc.PublishRequest("$SRV.INFO.cellmq", sub.Subject, nil); err != nil {
		t.Fatal(err)
	}
	for wait := 10 * time.Second; ; {
		if len(out) >= n {
			wait = 200 * time.Millisecond
		}
		m, err := sub.NextMsg(wait)
		if err != nil {
			break
		}
		var info micro.Info
		if err := json.Unmarshal(m.Data, &info); err != nil {
			t.Fatal(err)
		}
		out = append(out, info)
	}
	if err := sub.Unsubscribe(); err != nil {
		t.Error(err)
	}
	if len(out) != n {
		t.Errorf("%d instances, want %d: %+v", len(out), n, out)
	}
	return out
}

func TestDiscoveryShowsTheNewVersion(t *testing.T) {
	t.Parallel()
	_, conn := setup(t, broker.Config{})
	svc := serve(t, conn, broker.ServiceConfig{
		Worker: "w7", Version: "1.2.3", Models: served("1", "a", "b"), Credits: broker.NewCredits(2),
		Cancel: func(string, string, uint64) broker.CancelState { return broker.CancelUnknown },
	}, echo)
	for _, step := range []struct {
		models    []broker.ServedModel
		instances int
		want      map[string]string // version by subject
	}{
		{nil, 2, map[string]string{"infer.rt.a": "1", "infer.rt.b": "1"}},
		{served("2", "a", "b"), 2, map[string]string{"infer.rt.a": "2", "infer.rt.b": "2"}},
		{served("3", "b"), 2, map[string]string{"infer.rt.b": "3"}},
		{[]broker.ServedModel{}, 1, nil},
		{served("4", "c"), 2, map[string]string{"infer.rt.c": "4"}},
	} {
		if step.models != nil {
			if err := svc.SetModels(t.Context(), step.models); err != nil {
				t.Fatal(err)
			}
		}
		got, cancels := map[string]string{}, 0
		for _, info := range discovered(t, conn.NATS(), step.instances) {
			if info.Name != "cellmq" || info.Version != "1.2.3" || info.Metadata["worker"] != "w7" {
				t.Errorf("%+v", info)
			}
			for _, e := range info.Endpoints {
				switch version, model := e.Metadata["version"]; {
				case e.Subject == "infer.cancel.*":
					cancels++
				case model && e.Metadata["digest"] != "digest of "+version, e.QueueGroup != "cellmq" && model:
					t.Errorf("%+v", e)
				case model && e.Name[len(e.Name)-1] != 't': // not <model>_client
					got[e.Subject] = version
				}
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(step.want) || cancels == 0 {
			t.Errorf("found %v, want %v; %d for cancellation", got, step.want, cancels)
		}
	}
}

// TestSetModelsAcrossRestart changes the models while the server is away: the
// intake at once, the service when it is back.
func TestSetModelsAcrossRestart(t *testing.T) {
	t.Parallel()
	cfg := broker.ServerConfig{DataDir: t.TempDir(), Port: freePort(t)}
	server, err := broker.StartServer(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Shutdown() })
	conn, err := broker.Connect(t.Context(), broker.Config{URL: server.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.NATS().Close)
	w := startWorker(t, conn, []string{"a", "b"}, 8, echo)
	credits := broker.NewCredits(8)
	svc := serve(t, conn, broker.ServiceConfig{Models: served("1", "a", "b"), Credits: credits}, echo)
	nc, err := broker.Dial(t.Context(), server.URL(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	for i, models := range [][]string{{"a"}, {"a", "b"}, {"b"}, {"b", "a"}} {
		server.Shutdown()
		eventually(t, "the connection is lost", func() bool { return !conn.Connected() })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := svc.SetModels(ctx, served("1", models...)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a server: %v", err)
		}
		cancel()
		set := make(chan error, 1)
		go func() { set <- svc.SetModels(context.Background(), served(strconv.Itoa(i), models...)) }()
		if err := w.intake.SetModels(models); err != nil {
			t.Fatal(err)
		}
		if server, err = broker.StartServer(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		if err := <-set; err != nil {
			t.Fatal(err)
		}
		c := newClient(t, server, broker.ClientConfig{})
		for _, m := range models {
			read(t, ask(t, c, m, "x"))
			eventually(t, "model "+m+" is heard", func() bool { // a core request may get lost with a connection
				_, err := nc.Request("infer.rt."+m, []byte("x"), time.Second)
				return err == nil
			})
		}
	}
	w.stop()
	eventually(t, "credits come back", func() bool { return credits.Free() == 8 && w.credits.Free() == 8 })
}

// TestConnectionLostWhileEndpointsDrain loses the connection while requests wait
// in an endpoint that is to end, for another version of its model or for good.
// They are served, and the server does not go on to send requests where nobody
// hears them.
func TestConnectionLostWhileEndpointsDrain(t *testing.T) {
	t.Parallel()
	t.Run("SetModels", func(t *testing.T) {
		t.Parallel()
		loseWhileDraining(t, func(s *broker.Service, _ *broker.Conn) error { return s.SetModels(t.Context(), served("2", "a")) })
	})
	t.Run("Drain", func(t *testing.T) {
		t.Parallel()
		loseWhileDraining(t, func(s *broker.Service, conn *broker.Conn) error {
			// Another worker goes on.
			serve(t, conn, broker.ServiceConfig{Models: served("2", "a"), Credits: broker.NewCredits(8)}, echo)
			return s.Drain(t.Context())
		})
	})
}

// loseWhileDraining loses the connection after end, which has the endpoints drain.
func loseWhileDraining(t *testing.T, end func(*broker.Service, *broker.Conn) error) {
	t.Helper()
	server, conn := setup(t, broker.Config{})
	other := brokertest.Connect(t, server, broker.Config{})
	out, err := conn.Publisher(broker.PublisherConfig{Worker: "w1"})
	if err != nil {
		t.Fatal(err)
	}
	gate, held := make(chan struct{}), make(chan struct{}, 100)
	credits := broker.NewCredits(8)
	svc, err := conn.Serve(t.Context(), broker.ServiceConfig{
		Models: served("1", "a"), Credits: credits,
		Deliver: func(d *broker.Delivery) {
			held <- struct{}{}
			<-gate
			echo(d, out.Stream(d))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	nc, err := broker.Dial(t.Context(), server.URL(), "test", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	for range 3 {
		if err := nc.PublishRequest("infer.rt.a", nats.NewInbox(), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	<-held // one is in the handler, the others wait
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := end(svc, other); err != nil {
		t.Fatal(err)
	}
	before := conn.NATS().Stats().Reconnects
	if err := conn.Move(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is back", func() bool { return conn.Connected() && conn.NATS().Stats().Reconnects > before })
	close(gate)
	<-held
	<-held
	inARow := 0
	eventually(t, "30 requests in a row are answered", func() bool {
		inARow++
		if _, err := nc.Request("infer.rt.a", []byte("x"), 300*time.Millisecond); err != nil {
			inARow = 0
		}
		return inARow == 30
	})
	eventually(t, "credits come back", func() bool { return credits.Free() == 8 })
	if err := svc.Close(); err != nil {
		t.Error(err)
	}
}

// TestSetModelsAfterDrain brings nothing back.
func TestSetModelsAfterDrain(t *testing.T) {
	t.Parallel()
	_, conn := setup(t, broker.Config{})
	svc := serve(t, conn, broker.ServiceConfig{Models: served("1", "a"), Credits: broker.NewCredits(2)}, echo)
	var end []func() error
	end = append(end, func() error { return svc.Drain(t.Context()) }, svc.Close)
	for _, f := range end {
		if err := errors.Join(f(), svc.SetModels(t.Context(), served("2", "a", "b"))); err != nil {
			t.Fatal(err)
		}
		for _, subject := range []string{"infer.rt.a", "infer.rt.b", "$SRV.PING.cellmq"} {
			if _, err := conn.NATS().Request(subject, nil, 10*time.Second); !errors.Is(err, nats.ErrNoResponders) {
				t.Errorf("%s: %v", subject, err)
			}
		}
	}
}
