package ask

import (
	"net"
	"runtime"
	"time"
)

// dialTimeout is how long a server may take to accept a connection.
const dialTimeout = 5 * time.Second

// Dialer makes connections that cost little where a model is slow and frames come
// one step's at a time, so that each read waits; see [OneProcessor] for the other
// half of it. On Linux a read or a write that does not wait is hidden from Go's
// scheduler, which otherwise wakes a thread at each one, to watch over it. Elsewhere
// connections are as usual. It is for [nats.SetCustomDialer].
type Dialer struct{}

// Dial connects to an address.
func (Dialer) Dial(network, address string) (net.Conn, error) {
	c, err := net.DialTimeout(network, address, dialTimeout)
	if err != nil {
		return nil, err
	}
	return quiet(c), nil
}

// OneProcessor makes the process run Go on one processor until it calls restore. To
// hand a frame from the goroutine that reads to the one that counts then wakes no
// thread. What was read is counted before more is. It is a setting of the
// whole process: for programs that do nothing but put a load on.
func OneProcessor() (restore func()) {
	before := runtime.GOMAXPROCS(1)
	return func() { runtime.GOMAXPROCS(before) }
}
