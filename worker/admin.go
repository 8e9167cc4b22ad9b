package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// admin is the HTTP server for operators: /metrics, /healthz (the process
// answers) and /readyz (it takes requests).
type admin struct {
	listener net.Listener
	server   *http.Server
}

// listenAdmin binds the address, so that a taken port stops the start.
func listenAdmin(ctx context.Context, address string, gatherer prometheus.Gatherer, ready func() error) (*admin, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("admin server: %s_ADMIN_ADDRESS %s: %w", EnvPrefix, address, err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{MaxRequestsInFlight: 4}))
	mux.HandleFunc("GET /healthz", func(rw http.ResponseWriter, _ *http.Request) { answer(rw, nil) })
	mux.HandleFunc("GET /readyz", func(rw http.ResponseWriter, _ *http.Request) { answer(rw, ready()) })
	return &admin{
		listener: listener,
		server:   &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute},
	}, nil
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
