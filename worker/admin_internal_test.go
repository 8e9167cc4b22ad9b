package worker

import (
	"context"
	"net"
	"net/http"
	"strings"
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

// TestProfilesAreNotForOtherPages refuses what a page in a browser here has it ask, and
// answers programs, the user, and profiles' own links.
func TestProfilesAreNotForOtherPages(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{pprofAuto, pprofOn} {
		a, err := listenAdmin(t.Context(), &ObserveConfig{AdminAddress: "127.0.0.1:0", Pprof: setting}, prometheus.NewRegistry(), func() error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.listener.Close() })
		for _, tc := range []struct {
			header string
			want   int
		}{
			{"", http.StatusOK}, // go tool pprof, curl
			{"Sec-Fetch-Site: none", http.StatusOK},
			{"Sec-Fetch-Site: same-origin", http.StatusOK},
			{"Sec-Fetch-Site: same-site", http.StatusForbidden}, // another port here
			{"Sec-Fetch-Site: cross-site", http.StatusForbidden},
			{"Sec-Fetch-Site: anything", http.StatusForbidden},
			{"Origin: http://127.0.0.1:9464", http.StatusOK},
			{"Origin: http://127.0.0.1:3000", http.StatusForbidden},
			{"Origin: https://stranger.example", http.StatusForbidden},
			{"Origin: null", http.StatusForbidden},
			{"Referer: http://127.0.0.1:9464/debug/pprof/", http.StatusOK},
			{"Referer: http://stranger.example/127.0.0.1:9464", http.StatusForbidden},
			{"Referer: %%", http.StatusForbidden},
		} {
			for _, page := range []string{"", "cmdline", "symbol", "heap"} {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/pprof/"+page, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				r.Host = "127.0.0.1:9464"
				if name, value, ok := strings.Cut(tc.header, ": "); ok {
					r.Header.Set(name, value)
				}
				answer := &statusOnly{header: http.Header{}}
				a.server.Handler.ServeHTTP(answer, r)
				if answer.status != tc.want {
					t.Errorf("%s: %q with %q answers %d, want %d", setting, page, tc.header, answer.status, tc.want)
				}
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
