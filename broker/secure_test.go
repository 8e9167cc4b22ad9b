package broker_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/broker/brokertest"
)

// secured is a server with the example of a secure configuration.
type secured struct{ *brokertest.SecureT }

func secureServer(t *testing.T) *secured {
	t.Helper()
	return &secured{brokertest.Secure(t)}
}

// eachConfig runs a test with permissions alone, and with accounts beside them.
func eachConfig(t *testing.T, test func(*testing.T, *secured)) {
	t.Helper()
	for name, start := range map[string]func(testing.TB) *brokertest.SecureT{"permissions": brokertest.Secure, "accounts": brokertest.Accounts} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &secured{start(t)})
		})
	}
}

// dial connects a client.
func (s *secured) dial(t *testing.T, user string, opts ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := broker.Dial(t.Context(), s.URL(), user, nil, append(opts, s.Key(t, user))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// client connects a client whose name is the user's.
func (s *secured) client(t *testing.T, user string) (*nats.Conn, *broker.Client) {
	t.Helper()
	nc := s.dial(t, user, broker.OwnInbox("infer", user))
	c, err := broker.NewClient(nc, broker.ClientConfig{Name: user, CancelTimeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return nc, c
}

// worker connects a worker.
func (s *secured) worker(t *testing.T) *broker.Conn {
	t.Helper()
	conn, err := broker.Connect(t.Context(), broker.Config{
		URL: s.URL(), Inbox: "_INBOX_cellmq.w1", Options: []nats.Option{s.Key(t, "worker")},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.NATS().Close)
	return conn
}

// permits asks the server whether it takes a publication, or a subscription.
func permits(t *testing.T, nc *nats.Conn, verb, subject string) bool {
	t.Helper()
	word := "Publish"
	if verb == "sub" {
		word = "Subscription"
		sub, err := nc.SubscribeSync(subject)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sub.Unsubscribe() }()
	} else if err := nc.Publish(subject, nil); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil { // a refusal comes before the answer
		t.Fatal(err)
	}
	err := nc.LastError()
	refused := err != nil && strings.Contains(err.Error(), fmt.Sprintf("%s to %q", word, subject))
	if refused && !errors.Is(err, nats.ErrPermissionViolation) {
		t.Errorf("%s %s: %v", verb, subject, err)
	}
	return !refused
}

// TestSecureFileAsItIs loads the files themselves: nobody gets in with them, and
// they hold no seed.
func TestSecureFileAsItIs(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"nats-secure.conf", "nats-accounts.conf"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			letsNobodyIn(t, brokertest.Deployed(t, name))
		})
	}
}

func letsNobodyIn(t *testing.T, file string) {
	t.Helper()
	s, err := broker.StartServer(t.Context(), broker.ServerConfig{DataDir: t.TempDir(), ConfigFile: file})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Shutdown()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	for name, opts := range map[string][]nats.Option{"nobody": nil, "a stranger": {nats.Nkey(public, pair.Sign)}} {
		if nc, err := broker.Dial(t.Context(), s.URL(), "x", nil, opts...); !errors.Is(err, nats.ErrAuthorization) {
			t.Errorf("%s: %v, %v", name, nc, err)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if seed := regexp.MustCompile(`\bS[A-Z2-7]{57}\b`).Find(b); seed != nil {
		t.Errorf("%s holds a seed", file)
	}
}

// TestSecureSubjects is the matrix of what each user may reach.
func TestSecureSubjects(t *testing.T) {
	t.Parallel()
	eachConfig(t, secureSubjects)
}

func secureSubjects(t *testing.T, s *secured) {
	t.Helper()
	users := []string{"worker", "operator", "c1", "c2"}
	conns := map[string]*nats.Conn{}
	for _, u := range users {
		conns[u] = s.dial(t, u)
	}
	for _, row := range []struct{ verb, subject, who string }{
		{"pub", "infer.req.m.std.c1", "c1"},
		{"pub", "infer.req.m.high.c1", "c1"},
		{"pub", "infer.req.m.std.c2", "c2"},
		{"pub", "infer.req.m.std.c3", ""},
		{"pub", "infer.rt.m", ""},
		{"pub", "infer.rt.m.c1", "c1"},
		{"pub", "infer.rt.m.c2", "c2"},
		{"pub", "infer.cancel.c1", "c1"},
		{"pub", "infer.cancel.c2", "c2"},
		{"pub", "infer.resume.c1", "c1"},
		{"pub", "infer.resume.c2", "c2"},
		{"pub", "infer.out.c1.abcdefgh", "worker"},
		{"pub", "infer.outr.c1.abcdefgh", "worker"},
		{"pub", "infer.final.c1.abcdefgh", "worker"},
		{"pub", "infer.state.c1.abcdefgh", "worker"},
		{"pub", "infer.dlq.m", "worker"},
		{"pub", "infer.ctl.w1", "operator"},
		{"pub", "infer.watch", "operator"},
		{"pub", "infer.live.w1", "worker"},
		{"pub", "$SRV.PING", "operator"},
		{"pub", "_INBOX.abc", "worker"},
		{"pub", "_INBOX_cellmq.w1.abc", ""},
		{"pub", "$JS.ACK.INFER.m_std.1.1.1.1.0", "worker operator"},
		{"pub", "$JS.API.INFO", "worker operator"},
		{"pub", "$JS.API.STREAM.NAMES", "operator"},
		{"pub", "$JS.API.STREAM.INFO.INFER", "worker operator"},
		{"pub", "$JS.API.STREAM.DELETE.OTHER", "operator"},
		{"pub", "$JS.API.STREAM.PURGE.OTHER", "operator"},
		{"pub", "$JS.API.STREAM.MSG.GET.INFER", "worker operator"},
		{"pub", "$JS.API.STREAM.MSG.GET.INFER_OUT", "operator"},
		{"pub", "$JS.API.STREAM.MSG.DELETE.INFER_FINAL", "operator"},
		{"pub", "$JS.API.CONSUMER.CREATE.INFER_OUT.x", "operator"},
		{"pub", "$JS.API.CONSUMER.CREATE.INFER_FINAL.x", "operator"},
		{"pub", "$JS.API.DIRECT.GET.INFER_OUT", "worker operator"},
		{"pub", "$JS.API.DIRECT.GET.INFER_FINAL", "operator"},
		{"pub", "$JS.API.DIRECT.GET.INFER_FINAL.infer.final.c1.abcdefgh", "worker operator"},
		{"pub", "$JS.API.DIRECT.GET.INFER_FINAL.infer.final.c2.abcdefgh", "worker operator"},
		{"pub", "other", ""},
		{"sub", "infer.out.c1.*", "c1"},
		{"sub", "infer.out.c1.>", "c1"},
		{"sub", "infer.out.c2.*", "c2"},
		{"sub", "infer.out.*.abcdefgh", ""},
		{"sub", "infer.outr.c1.*", "c1"},
		{"sub", "infer.outr.c2.*", "c2"},
		{"sub", "infer.>", ""},
		{"sub", ">", ""},
		{"sub", "infer.req.m.std.c1", ""},
		{"sub", "infer.final.c1.*", ""},
		{"sub", "infer.state.c1.*", ""},
		{"sub", "infer.dlq.m", ""},
		{"sub", "infer.rt.m", "worker"},
		{"sub", "infer.rt.m.*", "worker"},
		{"sub", "infer.cancel.c1", "worker"},
		{"sub", "infer.resume.*", "worker"},
		{"sub", "infer.ctl.w1", "worker"},
		{"sub", "infer.watch", "worker"},
		{"sub", "infer.live.*", "operator"},
		{"sub", "$SRV.PING", "worker"},
		{"sub", "_INBOX.abc.*", "operator"},
		{"sub", "_INBOX_cellmq.w1.abc.*", "worker"},
		{"sub", "$JS.EVENT.>", "operator"},
		{"sub", "$JS.API.>", ""},
		{"sub", "$SYS.>", ""},
	} {
		for _, u := range users {
			want := strings.Contains(" "+row.who+" ", " "+u+" ")
			if got := permits(t, conns[u], row.verb, row.subject); got != want {
				t.Errorf("%s %s %s: permitted %v, want %v", u, row.verb, row.subject, got, want)
			}
		}
	}
}

// secureWorker serves the model echo on every path.
func secureWorker(t *testing.T, s *secured) (*broker.Conn, *broker.Service) {
	t.Helper()
	conn := s.worker(t)
	startWorker(t, conn, []string{"echo"}, 2, echo)
	finals, err := conn.Finals()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := finals.Close(); err != nil {
			t.Error(err)
		}
	})
	svc := serve(t, conn, broker.ServiceConfig{
		Worker: "w1", Models: []broker.ServedModel{{Name: "echo"}}, Credits: broker.NewCredits(2), Finals: finals,
		Cancel: func(_, id string, _ uint64) broker.CancelState {
			if strings.HasPrefix(id, "running") {
				return broker.CancelRunning
			}
			return broker.CancelUnknown
		},
		Control: func(broker.Control) broker.ControlReply { return broker.ControlReply{State: "serving"} },
	}, echo)
	return conn, svc
}

// TestSecurePaths takes every path with the permissions of the file.
func TestSecurePaths(t *testing.T) {
	t.Parallel()
	eachConfig(t, securePaths)
}

func securePaths(t *testing.T, s *secured) {
	t.Helper()
	conn, _ := secureWorker(t, s)
	_, c1 := s.client(t, "c1")
	_, c2 := s.client(t, "c2")
	for name, c := range map[string]*broker.Client{"one": c1, "two": c2} {
		for _, o := range []broker.RequestOptions{{}, {Mode: broker.ModeResume}, {Mode: broker.ModeFinal}, {Realtime: true}} {
			o.Input.Text = name
			st, err := c.Request(t.Context(), "echo", o)
			if err != nil {
				t.Fatal(err)
			}
			if f, err := st.Final(); err != nil || f.Text != name {
				t.Errorf("%s %+v: %q, %v", name, o, f.Text, err)
			}
		}
		if r, err := c.Cancel(t.Context(), "running1"); err != nil || r.State != broker.CancelRunning {
			t.Errorf("%s: cancel %+v, %v", name, r, err)
		}
		if _, err := c.Attach(t.Context(), "unknown1", broker.AttachOptions{}); err != nil {
			t.Errorf("%s: attach: %v", name, err)
		}
	}
	if m, err := s.dial(t, "operator").Request("infer.ctl.w1", nil, 10*time.Second); err != nil || !strings.Contains(string(m.Data), "serving") {
		t.Errorf("control: %v, %v", m, err)
	}
	if m, err := s.dial(t, "operator").Request("$SRV.PING.cellmq", nil, 10*time.Second); err != nil || !strings.Contains(string(m.Data), "w1") {
		t.Errorf("discovery: %v, %v", m, err)
	}
	everyStore(t, conn)
	if err := conn.Denied(); err != nil {
		t.Errorf("the worker lacks a permission: %v", err)
	}
}

// everyStore makes a worker's other calls. What they find does not matter, only
// that the server permits them.
func everyStore(t *testing.T, conn *broker.Conn) {
	t.Helper()
	const client, id = "c1", "abcdefgh"
	state := &broker.State{Client: client, ID: id, Digest: "d"}
	advised, stop := context.WithCancel(t.Context())
	read := make(chan error, 1)
	go func() {
		read <- conn.Advisories(advised, func(context.Context, broker.Advisory) error { return nil })
	}()
	calls := map[string]func(context.Context) error{
		"final":      func(ctx context.Context) error { _, err := conn.Final(ctx, client, id); return err },
		"save state": func(ctx context.Context) error { return conn.SaveState(ctx, state, time.Minute) },
		"state":      func(ctx context.Context) error { _, err := conn.State(ctx, client, id); return err },
		"write letter": func(ctx context.Context) error {
			return conn.WriteLetter(ctx, &broker.Letter{Sequence: 1, Subject: "infer.req.echo.std.c1", Client: client, ID: id, Model: "echo", Worker: "w1", Code: broker.CodeInternal})
		},
		"letters": func(ctx context.Context) error { _, err := conn.Letters(ctx, "echo", 1, 1); return err },
		"frames":  func(ctx context.Context) error { _, _, err := conn.OutFrames(ctx, client, id, 1, 1); return err },
		"queued":  func(ctx context.Context) error { _, err := conn.Queued(ctx, 1); return err },
		"delete":  func(ctx context.Context) error { return conn.Delete(ctx, 1) },
		"queue":   func(ctx context.Context) error { _, err := conn.Queue(ctx, "echo", broker.Std); return err },
		"residue": func(ctx context.Context) error { _, _, err := conn.Residue(ctx); return err },
	}
	for name, call := range calls {
		if err := call(t.Context()); err != nil && !errors.Is(err, broker.ErrNotStored) {
			t.Errorf("%s: %v", name, err)
		}
	}
	stop()
	if err := <-read; err != nil {
		t.Errorf("advisories: %v", err)
	}
}

// TestConfusedDeputy has a client ask the worker, who may publish everywhere, to
// reach what the client itself may not.
func TestConfusedDeputy(t *testing.T) {
	t.Parallel()
	eachConfig(t, confusedDeputy)
}

func confusedDeputy(t *testing.T, s *secured) {
	t.Helper()
	conn, svc := secureWorker(t, s)
	mallory, own := s.client(t, "c1")
	victim := s.dial(t, "c2")
	heard := make(chan *nats.Msg, 64)
	for _, subject := range []string{"infer.out.c2.>", "infer.outr.c2.>"} {
		if _, err := victim.ChanSubscribe(subject, heard); err != nil {
			t.Fatal(err)
		}
	}
	// What the worker may be made to say to workers, and to operators.
	for _, subject := range []string{"infer.cancel.c2", "infer.resume.c2", "infer.ctl.w1", "infer.rt.echo.c2"} {
		if _, err := conn.NATS().ChanSubscribe(subject, heard); err != nil {
			t.Fatal(err)
		}
	}
	operator := s.dial(t, "operator")
	if _, err := operator.ChanSubscribe("_INBOX.operator", heard); err != nil {
		t.Fatal(err)
	}
	for _, nc := range []*nats.Conn{victim, conn.NATS(), operator} {
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	others := []string{
		"infer.out.c2.abcdefgh", "infer.outr.c2.abcdefgh", "infer.cancel.c2", "infer.resume.c2", "infer.ctl.w1",
		"infer.rt.echo.c2", "_INBOX_cellmq.w1.x", "$JS.API.STREAM.PURGE.INFER",
	}
	ask := func(subject, reply, payload string, header nats.Header) {
		if err := mallory.PublishMsg(&nats.Msg{Subject: subject, Reply: reply, Data: []byte(payload), Header: header}); err != nil {
			t.Fatal(err)
		}
	}
	for i, reply := range append(others, "_INBOX.operator") {
		ask("infer.rt.echo.c1", reply, "x", nil)
		ask("infer.resume.c1", reply, `{"id":"running1"}`, nil)
		// The header: the answer to that comes on the client's own stream.
		ask("infer.req.echo.std.c1", "", "x", nats.Header{broker.HeaderReplyTo: {reply}, broker.HeaderID: {fmt.Sprintf("replyto%02d", i)}})
	}
	for _, reply := range others {
		ask("infer.cancel.c1", reply, `{"id":"running1"}`, nil)
	}
	// The same endpoints answer what comes behind, so the above has been taken.
	if r, err := own.Cancel(t.Context(), "running1"); err != nil || r.State != broker.CancelRunning {
		t.Errorf("own cancel: %+v, %v", r, err)
	}
	for i := range len(others) + 1 {
		st, err := own.Attach(t.Context(), fmt.Sprintf("replyto%02d", i), broker.AttachOptions{})
		if err != nil {
			t.Fatal(err)
		}
		st.Cancel()
	}
	if m, err := mallory.Request("infer.resume.c1", []byte(`{"id":"unknown1"}`), 10*time.Second); err != nil || !strings.Contains(string(m.Data), "unknown") {
		t.Errorf("own resume: %v, %v", m, err)
	}
	// The server itself refuses a reply to its API.
	eventually(t, "the realtime requests are dropped", func() bool { return svc.Stats().Unanswerable == uint64(len(others)) })
	eventually(t, "the durable requests are answered", func() bool { return queueLength(conn) <= 0 })
	for _, nc := range []*nats.Conn{conn.NATS(), victim, operator} { // everything that was sent has come
		if err := nc.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case m := <-heard:
		t.Errorf("%s got %q", m.Subject, m.Data)
	default:
	}
	if err := conn.Denied(); err != nil {
		t.Errorf("the worker tried what it may not: %v", err)
	}
}

// TestPermissionViolationIsNamed wants a worker that lacks a permission to say
// which one, at once and for as long as it lacks it.
func TestPermissionViolationIsNamed(t *testing.T) {
	t.Parallel()
	s := secureServer(t)
	for _, user := range []string{"c1", "operator"} {
		start := time.Now()
		conn, err := broker.Connect(t.Context(), broker.Config{
			URL: s.URL(), Inbox: "_INBOX_cellmq.w1", Options: []nats.Option{s.Key(t, user)},
		})
		if err == nil {
			conn.NATS().Close()
		}
		if !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), `subscribe to "_INBOX_cellmq.w1.`) {
			t.Errorf("%s: %v after %v", user, err, time.Since(start))
		}
	}
	// A worker's permissions, less one.
	config, err := os.ReadFile(s.ConfigFile)
	if err != nil {
		t.Fatal(err)
	}
	less := strings.Replace(string(config), `"$JS.API.STREAM.CREATE.INFER_FINAL", `, "", 1)
	less = strings.Replace(less, `"infer.rt.>", `, "", 1)
	if err := os.WriteFile(s.ConfigFile, []byte(less), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Shutdown()
	if s.Server, err = broker.StartServer(t.Context(), broker.ServerConfig{DataDir: t.TempDir(), ConfigFile: s.ConfigFile}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	conn := s.worker(t)
	if err := conn.Denied(); err != nil {
		t.Errorf("denied before anything was tried: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	err = conn.EnsureStreams(ctx, []string{"echo"})
	if !errors.Is(err, nats.ErrPermissionViolation) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `"$JS.API.STREAM.CREATE.INFER_FINAL"`) {
		t.Errorf("ensure streams: %v", err)
	}
	if err := conn.Denied(); err == nil || !strings.Contains(err.Error(), "STREAM.CREATE.INFER_FINAL") {
		t.Errorf("denied: %v", err)
	}
	serve(t, conn, broker.ServiceConfig{Models: []broker.ServedModel{{Name: "echo"}}, Credits: broker.NewCredits(1)}, echo)
	eventually(t, "the refused subscription is named", func() bool {
		err := conn.Denied()
		return err != nil && strings.Contains(err.Error(), `subscribe to "infer.rt.echo`)
	})
}

// TestClientHearsWhatItLacks names itself as somebody else.
func TestClientHearsWhatItLacks(t *testing.T) {
	t.Parallel()
	s := secureServer(t)
	secureWorker(t, s)
	nc := s.dial(t, "c1", broker.OwnInbox("infer", "c1"))
	c, err := broker.NewClient(nc, broker.ClientConfig{Name: "c2", ReceiptWait: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	st, err := c.Request(t.Context(), "echo", broker.RequestOptions{Input: broker.Input{Text: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = st.Final()
	if !errors.Is(err, broker.ErrNoReceipt) || !strings.Contains(err.Error(), `"infer.req.echo.std.c2"`) {
		t.Errorf("got %v", err)
	}
}

// TestClusterFile loads the example of a cluster's server.
func TestClusterFile(t *testing.T) {
	t.Setenv("NATS_NAME", "nats-1")
	t.Setenv("NATS_CLUSTER_PASSWORD", "secret")
	t.Setenv("NATS_ROUTES", `["nats://cluster:secret@nats-1:6222", "nats://cluster:secret@nats-2:6222"]`)
	opts, err := server.ProcessConfigFile(brokertest.Deployed(t, "nats-cluster.conf"))
	if err != nil {
		t.Fatal(err)
	}
	if opts.ServerName != "nats-1" || opts.Cluster.Name != "cellmq" || opts.Cluster.Password != "secret" || len(opts.Routes) != 2 || len(opts.Nkeys) != 4 {
		t.Errorf("server %q, cluster %+v, routes %v, %d users", opts.ServerName, opts.Cluster, opts.Routes, len(opts.Nkeys))
	}
}
