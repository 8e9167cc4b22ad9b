package worker

import (
	"cmp"
	"context"
	"embed"
	"encoding/json"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strings"
)

// livePage is the page and what belongs to it, as it is served.
//
//go:embed web
var livePage embed.FS

// liveSockets bounds the pages that can be connected through the admin address at
// the same time.
const liveSockets = 64

// liveView serves the live page below /live/, and a page with links at /. The page
// speaks NATS: to CELLMQ_LIVE_URL, or through the admin address, at /live/nats, to
// the WebSocket port of the embedded server.
type liveView struct {
	facts   liveFacts
	socket  func() string // the embedded server's WebSocket URL; empty: none
	sockets chan struct{} // holds one for each connected page
	log     *slog.Logger
}

// liveFacts are what the page is told.
type liveFacts struct {
	Worker string `json:"worker"`
	Prefix string `json:"prefix"`
	// URL of the NATS server, relative to the page; the host name "host" is that of the
	// page. Empty: there is none.
	URL string `json:"url"`
}

// serveLive adds the live page to the admin server, which is not running yet. What is
// proxied ends with ctx.
func (w *Worker) serveLive(ctx context.Context, a *admin) {
	v := &liveView{
		facts: liveFacts{Worker: w.cfg.Name, Prefix: w.cfg.SubjectPrefix, URL: w.cfg.LiveURL},
		socket: func() string {
			if u := w.webSocket.Load(); u != nil {
				return *u
			}
			return ""
		},
		sockets: make(chan struct{}, liveSockets), log: w.log,
	}
	mux := http.NewServeMux()
	mux.Handle("/", a.server.Handler)
	v.register(mux)
	a.server.Handler = mux
	a.server.BaseContext = func(net.Listener) context.Context { return ctx }
}

func (v *liveView) register(mux *http.ServeMux) {
	page, err := fs.Sub(livePage, "web")
	if err != nil {
		panic(err) // the name is a constant
	}
	files := http.StripPrefix("/live/", http.FileServerFS(page))
	mux.HandleFunc("GET /{$}", func(rw http.ResponseWriter, r *http.Request) {
		v.guard(rw, r)
		http.ServeFileFS(rw, r, page, "home.html")
	})
	mux.HandleFunc("GET /live/", func(rw http.ResponseWriter, r *http.Request) {
		v.guard(rw, r)
		files.ServeHTTP(rw, r)
	})
	mux.HandleFunc("GET /live/settings.json", func(rw http.ResponseWriter, r *http.Request) {
		v.guard(rw, r)
		rw.Header().Set("Content-Type", "application/json")
		facts := v.facts
		facts.URL = v.url()
		_ = json.NewEncoder(rw).Encode(facts) // a page that left needs no answer
	})
	mux.HandleFunc("GET /live/nats", v.connect)
}

// url is where the page finds NATS.
func (v *liveView) url() string {
	if v.facts.URL != "" {
		return v.facts.URL
	}
	u, err := url.Parse(v.socket())
	switch {
	case err != nil || u.Host == "":
		return ""
	case u.Scheme == "wss":
		// The browser checks the certificate, which is not this address's.
		return "wss://host:" + u.Port() + "/"
	}
	return "nats"
}

// hostPattern is a host that may be repeated in a header.
var hostPattern = regexp.MustCompile(`^[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?$`)

// guard lets the page load and connect to nothing but what it is made of and NATS,
// and be part of no other page.
func (v *liveView) guard(rw http.ResponseWriter, r *http.Request) {
	connect := "'self'"
	if hostPattern.MatchString(r.Host) {
		connect += " ws://" + r.Host + " wss://" + r.Host // older browsers do not count these as self
	}
	if u, err := url.Parse(v.url()); err == nil && u.Host != "" {
		host := u.Host
		if own, _, _ := strings.Cut(r.Host, ":"); u.Hostname() == "host" && hostPattern.MatchString(own) {
			host = own + ":" + u.Port()
		}
		connect += " " + u.Scheme + "://" + host
	}
	h := rw.Header()
	h.Set("Content-Security-Policy", "default-src 'self'; connect-src "+connect+
		"; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-cache")
}

// connect passes a page's WebSocket on to the embedded server, which asks for
// credentials as it does at its own port, and refuses pages of other origins.
func (v *liveView) connect(rw http.ResponseWriter, r *http.Request) {
	target, err := url.Parse(v.socket())
	switch {
	case err != nil || target.Scheme != "ws" || v.facts.URL != "":
		http.Error(rw, "no WebSocket of an embedded server here", http.StatusNotFound)
		return
	case !ownHost(r.Host):
		http.Error(rw, "the page was not loaded under a name that is surely this machine's: use its address, or set "+EnvPrefix+"_LIVE_URL", http.StatusForbidden)
		return
	}
	select {
	case v.sockets <- struct{}{}:
		defer func() { <-v.sockets }()
	default:
		http.Error(rw, "too many pages are connected", http.StatusServiceUnavailable)
		return
	}
	reachable(target)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.URL.Path = "http", target.Host, "/"
			p.Out.Host = p.In.Host // the server compares it to the origin
		},
		ErrorLog: slog.NewLogLogger(v.log.Handler(), slog.LevelDebug),
	}
	proxy.ServeHTTP(rw, r)
}

// reachable makes an address to connect to of one to listen on.
func reachable(u *url.URL) {
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil && addr.IsUnspecified() {
		u.Host = net.JoinHostPort("127.0.0.1", u.Port())
	}
}

// ownHost reports whether a browser that names this host has surely reached this
// machine: by an address, by a name without dots, or by the machine's own. Any
// other name may be that of a stranger, who made it mean this machine after his page was
// loaded.
func ownHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return true
	}
	own, _ := os.Hostname()
	return name != "" && !strings.Contains(name, ".") || strings.HasSuffix(name, ".localhost") || strings.EqualFold(name, cmp.Or(own, "localhost"))
}
