package worker

import (
	"time"

	"github.com/nats-io/nats.go"
	"github.com/prometheus/client_golang/prometheus"
)

// wire are the figures of the connection and of what waits behind it.
type wire struct {
	worker *Worker

	connected, reconnects, inMessages, outMessages, inBytes, outBytes, queued, age *prometheus.Desc
}

// newWire returns the collector of w's connection.
func newWire(w *Worker) *wire {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &wire{
		worker:      w,
		connected:   desc("cellmq_nats_connected", "1 while the worker is connected to its NATS server."),
		reconnects:  desc("cellmq_nats_reconnects_total", "Connections made after the first one."),
		inMessages:  desc("cellmq_nats_in_messages_total", "Messages from the server."),
		outMessages: desc("cellmq_nats_out_messages_total", "Messages to the server."),
		inBytes:     desc("cellmq_nats_in_bytes_total", "Payload bytes from the server."),
		outBytes:    desc("cellmq_nats_out_bytes_total", "Payload bytes to the server."),
		queued:      desc("cellmq_queued_requests", "Requests that wait in the broker and that no worker has, as of cellmq_queued_age_seconds ago. All workers of a model show the same.", "model", "priority"),
		age:         desc("cellmq_queued_age_seconds", "Time since the server said how many requests wait; absent before."),
	}
}

// Describe implements [prometheus.Collector].
func (c *wire) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.connected, c.reconnects, c.inMessages, c.outMessages, c.inBytes, c.outBytes, c.queued, c.age,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *wire) Collect(ch chan<- prometheus.Metric) {
	gauge, counter := gaugeTo(ch), counterTo(ch)
	var (
		connected float64
		stats     nats.Statistics
		conn      = c.worker.link.Load()
	)
	if conn != nil {
		stats = conn.NATS().Stats()
		if conn.Connected() {
			connected = 1
		}
	}
	gauge(c.connected, connected)
	counter(c.reconnects, float64(stats.Reconnects))
	counter(c.inMessages, float64(stats.InMsgs))
	counter(c.outMessages, float64(stats.OutMsgs))
	counter(c.inBytes, float64(stats.InBytes))
	counter(c.outBytes, float64(stats.OutBytes))
	if conn != nil && c.worker.serving.Load() {
		c.worker.depths.refresh(conn, c.worker.modelNames())
	}
	depths, at := c.worker.depths.known()
	for _, d := range depths {
		gauge(c.queued, float64(d.Waiting), d.Model, string(d.Priority))
	}
	if !at.IsZero() {
		gauge(c.age, max(time.Since(at).Seconds(), 0))
	}
}
