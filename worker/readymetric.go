package worker

import "github.com/prometheus/client_golang/prometheus"

// newReady returns the figure that says what /readyz says.
func newReady(w *Worker) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "cellmq_ready", Help: "1 while the worker takes requests, as /readyz says.",
	}, func() float64 {
		if w.readiness() != nil {
			return 0
		}
		return 1
	})
}
