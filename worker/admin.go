package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// The values of the setting that turns profiles on.
const (
	pprofAuto = "auto"
	pprofOn   = "on"
	pprofOff  = "off"
)

// admin is the HTTP server for operators: /metrics, /healthz (the process
// answers), /readyz (it takes requests) and, if wanted, /debug/pprof/. It has a
// multiplexer of its own, so that nothing else in the process adds a page.
type admin struct {
	listener net.Listener
	server   *http.Server
}

// listenAdmin binds the address, so that a taken port stops the start.
func listenAdmin(ctx context.Context, cfg *ObserveConfig, gatherer prometheus.Gatherer, ready func() error) (*admin, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.AdminAddress)
	if err != nil {
		return nil, fmt.Errorf("admin server: %s_ADMIN_ADDRESS %s: %w", EnvPrefix, cfg.AdminAddress, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) { answer(rw, nil) })
	mux.HandleFunc("GET /readyz", func(rw http.ResponseWriter, _ *http.Request) { answer(rw, ready()) })
	if profiles(cfg.Pprof, listener.Addr()) {
		addProfiles(mux, loopback(listener.Addr()))
	}
	return &admin{
		listener: listener,
		server:   &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute},
	}, nil
}

// addProfiles adds the pages of profiles, which cost time to make. They are for nobody
// whom another page in a browser sent. Where only this machine reaches them they are not for
// who names another host either: a page of a stranger, whose name was made to mean this
// machine after it was loaded, could read them in a browser here.
func addProfiles(mux *http.ServeMux, onlyHere bool) {
	for page, serve := range map[string]http.HandlerFunc{
		"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace,
	} {
		mux.HandleFunc("GET /debug/pprof/"+page, func(rw http.ResponseWriter, r *http.Request) {
			switch {
			case onlyHere && !ownHost(r.Host):
				http.Error(rw, "profiles are for this machine, and the name is not surely its: use its address", http.StatusForbidden)
			case foreign(r):
				http.Error(rw, "profiles are not for other pages: enter the address yourself", http.StatusForbidden)
			default:
				rw.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
				serve(rw, r)
			}
		})
	}
}

// foreign reports whether a page of another origin had a browser send a request, as a
// link, an image or a script. Browsers say so of addresses of loopback, and of others over
// TLS; of the rest only the origin or the referrer does, if the page does not
// keep it back. [http.CrossOriginProtection] lets all requests pass that change
// nothing.
func foreign(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site != "same-origin" && site != "none" // none: the user entered it
	}
	for _, name := range []string{"Origin", "Referer"} {
		from := r.Header.Get(name)
		if from == "" {
			continue
		}
		if u, err := url.Parse(from); err != nil || u.Host != r.Host {
			return true
		}
	}
	return false
}

// profiles reports whether a server that listens on an address has profiles. What
// is not loopback for sure is not.
func profiles(setting string, listens net.Addr) bool {
	if setting != pprofAuto {
		return setting == pprofOn
	}
	return loopback(listens)
}

// loopback reports whether only this machine reaches an address.
func loopback(listens net.Addr) bool {
	tcp, ok := listens.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// address is where the server listens.
func (a *admin) address() string { return a.listener.Addr().String() }

// run serves until ctx ends.
func (a *admin) run(ctx context.Context, log *slog.Logger) error {
	stop := context.AfterFunc(ctx, func() {
		if err := a.server.Close(); err != nil {
			log.LogAttrs(context.Background(), slog.LevelDebug, "admin server close failed", slog.Any("error", err))
		}
	})
	defer stop()
	if err := a.server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin server: %w", err)
	}
	return nil
}

func answer(rw http.ResponseWriter, err error) {
	rw.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if err != nil {
		rw.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(rw, err.Error()+"\n") // a prober that left needs no answer
		return
	}
	_, _ = io.WriteString(rw, "ok\n")
}
