package webtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/cellmq/cellmq/broker"
	"github.com/cellmq/cellmq/worker"
)

// TestPage asks a model on the page and watches its cells fill, without an error in
// the browser and without a request to anybody else.
func TestPage(t *testing.T) {
	t.Parallel()
	browser(t)
	// Slow steps, so that an answer takes long enough to be seen growing.
	w, _ := serving(t, func(c *worker.Config) { c.ISA, c.FrameInterval = "purego", 5*time.Millisecond })
	host := w.AdminAddress()
	p := open(t, "http://"+host+"/")
	p.do(t, "follow the link", click(`a[href="live/"]`), chromedp.WaitVisible(chromedp.CSS("#figures")))
	p.until(t, `document.querySelector("#connection")?.dataset.state === "open" && document.querySelector("#model").value === "g2p-en"`)
	p.do(t, "ask", script(`document.querySelector("#input").value = "incomprehensibilities"`),
		// How many pieces the output comes in, and that it grows, is seen as it happens.
		script(`window.pieces = []; new MutationObserver(() => {
			const o = document.querySelector("#answers li:last-child .output"); if (o) window.pieces.push(o.textContent);
		}).observe(document.querySelector("#answers"), {childList: true, subtree: true, characterData: true}); 0`),
		click("#send"))
	p.until(t, `document.querySelector("#answers li")?.dataset.state === "final"`)
	const want = "IH2 N K AA2 M P R AH0 HH EH1 N S AH0 B AH0 L IH0 T IY0 Z"
	if got := value[string](t, p, `document.querySelector("#answers li .output").textContent`); got != want {
		t.Errorf("answer %q, want %q", got, want)
	}
	if outcome := value[string](t, p, `document.querySelector("#answers li .outcome").textContent`); !strings.Contains(outcome, "stop, 20 tokens") {
		t.Errorf("outcome %q", outcome)
	}
	if n := value[int](t, p, `new Set(window.pieces.filter((s) => s && "`+want+`".startsWith(s))).size`); n < 2 {
		t.Errorf("the answer came in %d pieces", n)
	}
	p.do(t, "ask more, through JetStream", script(`document.querySelector("#path").value = "std"`), click("#many"))
	p.until(t, `document.querySelectorAll('#answers li[data-state="final"]').length === 33`)
	// The decoder has squares of more than one colour in a column, so sequences share steps.
	p.until(t, `[...document.querySelectorAll(".lane")].some((l) => {
		const c = l.querySelector("canvas"), d = c.getContext("2d").getImageData(0, 0, c.width, c.height).data, seen = new Set();
		for (let i = 0; i < d.length; i += 4) if (d[i + 3] === 255) seen.add(d[i] + " " + d[i + 1] + " " + d[i + 2]);
		return l.textContent.includes("decoder") && seen.size > 3;
	})`)
	p.until(t, `document.querySelector("#workers td")?.textContent === "worker-a" && document.querySelector("#models td:nth-child(7)").textContent !== "- / -"`)
	if lanes := value[int](t, p, `document.querySelectorAll(".lane").length`); lanes != 4 {
		t.Errorf("%d lanes, the model has 4 cells", lanes)
	}
	picture(t, p, "page.png")
	if s := p.troubles(); len(s) > 0 {
		t.Errorf("the browser complains: %q", s)
	}
	if s := p.strangers(host); len(s) > 0 {
		t.Errorf("the page asks others: %q", s)
	}
	checkPolicy(t, p)
}

// checkPolicy wants the browser to refuse what the page must never do.
func checkPolicy(t *testing.T, p *tab) {
	t.Helper()
	p.do(t, "break the policy", script(`window.broken = [];
		addEventListener("securitypolicyviolation", (e) => window.broken.push(e.effectiveDirective));
		fetch("http://127.0.0.1:9/").catch(() => {});
		document.body.append(Object.assign(document.createElement("script"), {textContent: "window.inline = 1"}));
		document.body.append(Object.assign(document.createElement("img"), {src: "http://127.0.0.1:9/x.png"}));
		document.body.insertAdjacentHTML("beforeend", "<i onclick='window.inline = 1'></i>"); document.body.lastChild.click(); 0`))
	p.until(t, `["connect-src", "script-src-elem", "img-src", "script-src-attr"].every((d) => window.broken.includes(d))`)
	if value[bool](t, p, `"inline" in window`) {
		t.Error("a script within the page has run")
	}
}

// picture keeps what the page looks like in the directory that PICTURES names.
func picture(t *testing.T, p *tab, name string) {
	t.Helper()
	dir := os.Getenv("PICTURES")
	if dir == "" {
		return
	}
	b, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestHostilePeers has somebody on the server who shows a worker and gives answers
// that are made of markup: it is shown as text.
func TestHostilePeers(t *testing.T) {
	t.Parallel()
	browser(t)
	port := freePort(t)
	w, _ := serving(t, func(c *worker.Config) { c.EmbeddedPort = port })
	nc, err := nats.Connect(fmt.Sprintf("nats://127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	const markup = `<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>`
	evil := &broker.Snapshot{
		V: 1, Worker: "evil", Version: markup, ISA: markup, State: markup, Reason: markup,
		Executors: []broker.LiveExecutor{{Threads: 1, Model: markup, Cell: markup}},
		Models: []broker.LiveModel{{
			Name: "evil", Versions: []broker.LiveModelVersion{{Version: markup, State: markup}},
			Cells: []broker.LiveCell{{Name: markup, MaxRows: 4}},
		}, {Name: markup}},
		Recent: []broker.LiveStep{{Number: 1, Rows: 1, Slots: []int32{1}}},
	}
	show := func(*nats.Msg) {
		evil.Uptime++
		evil.Recent[0].Number++
		b, err := json.Marshal(evil)
		if err == nil {
			err = nc.Publish("infer.live.evil", b)
		}
		for _, junk := range []string{"", "null", "[1]", `{"v":1,"worker":"junk"}`, `{"v":1,"worker":"junk","models":[null],"executors":[null]}`, `{"v":1,"worker":"junk","models":5,"executors":[]}`} {
			if err == nil {
				err = nc.Publish("infer.live.junk", []byte(junk))
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
	for subject, take := range map[string]nats.MsgHandler{
		"infer.watch": show,
		"infer.rt.evil.*": func(m *nats.Msg) {
			text, _ := json.Marshal(markup) // a string
			for _, frame := range []string{
				`nonsense`, `null`, `{"type":"token","text":5,"index":{}}`,
				fmt.Sprintf(`{"type":"accepted","epoch":1,"attempt":1,"worker":%s,"version":%s}`, text, text),
				fmt.Sprintf(`{"type":"token","epoch":1,"attempt":1,"index":0,"tokens":[1],"text":%s}`, text),
				fmt.Sprintf(`{"type":"error","epoch":1,"attempt":1,"code":%s,"message":%s}`, text, text),
			} {
				if err := m.Respond([]byte(frame)); err != nil {
					t.Error(err)
				}
			}
		},
	} {
		if _, err := nc.Subscribe(subject, take); err != nil {
			t.Fatal(err)
		}
	}
	p := open(t, "http://"+w.AdminAddress()+"/live/")
	p.until(t, `[...document.querySelectorAll("#worker option")].some((o) => o.value === "evil")`)
	p.do(t, "look at it", fill("#worker", "evil"), fill("#model", "evil"), fill("#input", markup), click("#send"))
	p.until(t, `document.querySelector("#answers li")?.dataset.state === "error" && document.querySelector(".lane") !== null`)
	if text := value[string](t, p, `document.querySelector("#answers .output").textContent`); text != markup {
		t.Errorf("output %q", text)
	}
	p.until(t, `document.querySelector("#models").textContent.includes("<img src=x") && document.querySelector("#workers").textContent.includes("worker-a")`)
	if value[bool](t, p, `"pwned" in window || document.querySelector("main img, main script") !== null`) {
		t.Error("markup was taken for markup")
	}
	if s := p.troubles(); len(s) > 0 {
		t.Errorf("the browser complains: %q", s)
	}
}

// TestReconnect loses the worker with its server, and finds it again.
func TestReconnect(t *testing.T) {
	t.Parallel()
	browser(t)
	admin, socket := freePort(t), freePort(t)
	data := t.TempDir()
	same := func(c *worker.Config) {
		c.AdminAddress, c.EmbeddedWebsocketPort, c.DataDir = fmt.Sprintf("127.0.0.1:%d", admin), socket, data
	}
	_, stop := serving(t, same)
	p := open(t, fmt.Sprintf("http://127.0.0.1:%d/live/", admin))
	p.until(t, `document.querySelector("#workers td")?.textContent === "worker-a"`)
	stop()
	p.until(t, `document.querySelector("#connection").dataset.state !== "open" && document.querySelector("#workers td") === null`)
	serving(t, same)
	p.until(t, `document.querySelector("#connection").dataset.state === "open" && document.querySelector("#workers td")?.textContent === "worker-a"`)
	p.do(t, "ask", fill("#input", "again"), click("#send"))
	p.until(t, `document.querySelector("#answers li")?.dataset.state === "final"`)
}

// TestLogin asks for what the server wants to have, and keeps nothing of it. Without a
// WebSocket the page says how to have one.
func TestLogin(t *testing.T) {
	t.Parallel()
	browser(t)
	file := filepath.Join(t.TempDir(), "nats.conf")
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "worker.nk")
	users := fmt.Sprintf(`authorization { users: [ { nkey: %s }, { user: me, password: "correct horse" } ] }`, public)
	if err := errors.Join(os.WriteFile(file, []byte(users), 0o600), os.WriteFile(key, seed, 0o600)); err != nil {
		t.Fatal(err)
	}
	plain, _ := serving(t, func(c *worker.Config) { c.EmbeddedConfig, c.NatsNkey = file, key })
	q := open(t, "http://"+plain.AdminAddress()+"/live/")
	q.until(t, `!document.querySelector("#login").hidden`)
	enter := func(password string) {
		q.do(t, "log in", fill("#user", "me"), fill("#password", password), click("#login button"))
	}
	enter("wrong")
	q.until(t, `document.querySelector("#login-why").textContent.includes("Authorization")`)
	enter("correct horse")
	q.until(t, `document.querySelector("#connection").dataset.state === "open" && document.querySelector("#login").hidden`)
	if n := value[int](t, q, `localStorage.length + sessionStorage.length + document.cookie.length + document.querySelector("#password").value.length`); n > 0 {
		t.Error("something of the login is kept")
	}
}

// TestOtherServers has the page connect to another server than the embedded one, which
// must allow its origin, and say how to have a WebSocket where there is none.
func TestOtherServers(t *testing.T) {
	t.Parallel()
	browser(t)
	server, err := broker.StartServer(t.Context(), broker.ServerConfig{DataDir: t.TempDir(), WebSocketPort: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Shutdown)
	w, _ := serving(t, func(c *worker.Config) { c.NatsURL, c.LiveURL = server.URL(), server.WebSocketURL() })
	p := open(t, "http://"+w.AdminAddress()+"/live/")
	p.until(t, `document.querySelector("#connection").dataset.state === "failed"`)
	if s := p.strangers(w.AdminAddress()); len(s) == 0 || !strings.HasPrefix(s[0], server.WebSocketURL()) {
		t.Errorf("the page asks %q", s)
	}

	off, _ := serving(t, func(c *worker.Config) { c.EmbeddedWebsocketPort = 0 })
	p.do(t, "open", chromedp.Navigate("http://"+off.AdminAddress()+"/live/"))
	p.until(t, `document.querySelector("#off").innerText.includes("CELLMQ_EMBEDDED_WEBSOCKET_PORT") && !document.querySelector("#off").hidden`)
}
