package worker

import (
	"context"
	"net"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestProfilesAreForLoopback(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		setting, address string
		want             bool
	}{
		{pprofAuto, "127.0.0.1", true},
		{pprofAuto, "::1", true},
		{pprofAuto, "0.0.0.0", false},
		{pprofAuto, "::", false},
		{pprofAuto, "10.1.2.3", false},
		{pprofOn, "0.0.0.0", true},
		{pprofOff, "127.0.0.1", false},
		{"", "127.0.0.1", false},
	} {
		if got := profiles(tc.setting, &net.TCPAddr{IP: net.ParseIP(tc.address)}); got != tc.want {
			t.Errorf("%q on %s: %v", tc.setting, tc.address, got)
		}
	}
}

func TestProfilePages(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]int{pprofAuto: http.StatusOK, pprofOff: http.StatusNotFound} {
		a, err := listenAdmin(t.Context(), &ObserveConfig{AdminAddress: "127.0.0.1:0", Pprof: setting}, prometheus.NewRegistry(), func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range []string{"", "cmdline", "symbol", "heap", "goroutine"} {
			r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "/debug/pprof/"+page, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = "localhost"
			answer := &statusOnly{header: http.Header{}}
			a.server.Handler.ServeHTTP(answer, r)
			if answer.status != want {
				t.Errorf("%s: %q answers %d, want %d", setting, page, answer.status, want)
			}
		}
		if err := a.listener.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestProfilesKnowTheirHost keeps profiles from a page whose name was made to mean
// this machine after it was loaded.
func TestProfilesKnowTheirHost(t *testing.T) {
	t.Parallel()
	a, err := listenAdmin(t.Context(), &ObserveConfig{AdminAddress: "127.0.0.1:0", Pprof: pprofAuto}, prometheus.NewRegistry(), func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.listener.Close() })
	for host, want := range map[string]int{
		"127.0.0.1:9464": http.StatusOK, "[::1]:9464": http.StatusOK, "localhost:9464": http.StatusOK,
		"stranger.example:9464": http.StatusForbidden, "": http.StatusForbidden,
	} {
		for _, page := range []string{"", "cmdline", "symbol", "heap"} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/pprof/"+page, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = host
			answer := &statusOnly{header: http.Header{}}
			a.server.Handler.ServeHTTP(answer, r)
			if answer.status != want {
				t.Errorf("%q of host %q answers %d, want %d", page, host, answer.status, want)
			}
		}
	}
}

// statusOnly keeps an answer's status.
type statusOnly struct {
	header http.Header
	status int
}

func (s *statusOnly) Header() http.Header { return s.header }

func (s *statusOnly) Write(b []byte) (int, error) {
	if s.status == 0 {
		s.status = http.StatusOK
	}
	return len(b), nil
}

func (s *statusOnly) WriteHeader(status int) { s.status = status }
