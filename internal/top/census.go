package top

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/cellmq/cellmq/broker"
)

// askEvery is the shortest time between two questions of a census.
const askEvery = 5 * time.Second

// census asks service discovery for the workers that there are. One goroutine uses it.
type census struct {
	conn    *nats.Conn
	inbox   string
	answers chan *nats.Msg
	sub     *nats.Subscription
	asked   time.Time
}

// newCensus returns one that has not asked yet.
func newCensus(conn *nats.Conn) (*census, error) {
	c := &census{conn: conn, inbox: conn.NewInbox(), answers: make(chan *nats.Msg, maxWorkers)} // a large fleet answers at once
	sub, err := conn.ChanSubscribe(c.inbox, c.answers)
	if err != nil {
		return nil, fmt.Errorf("census: %w", err)
	}
	c.sub = sub
	return c, nil
}

// ask asks all workers, unless it did a moment ago. Answers come to the channel.
func (c *census) ask(now time.Time) {
	if !c.asked.IsZero() && now.Sub(c.asked) < askEvery {
		return
	}
	c.asked = now
	_ = c.conn.PublishRequest("$SRV.PING.cellmq", c.inbox, nil) // a connection that is lost is asked again
}

func (c *census) close() { _ = c.sub.Unsubscribe() } // the connection may be closed

// workerOf reads the worker's name in an answer; empty: it has none.
func workerOf(answer []byte) string {
	var service struct {
		Metadata struct {
			Worker string `json:"worker"`
		} `json:"metadata"`
	}
	if json.Unmarshal(answer, &service) != nil || !broker.ValidClient(service.Metadata.Worker) {
		return ""
	}
	return service.Metadata.Worker
}

// count notes what an answer says.
func (f *Fleet) count(answer []byte, now time.Time) {
	if name := workerOf(answer); name != "" {
		f.Answered(name, now)
	}
}
