// Package deploytest holds the tests of deploy: whether the rules, the dashboard
// and the Kubernetes manifests fit the worker of this tree. It is a module of its
// own, since it needs the query engine of Prometheus and the API types of
// Kubernetes, which nothing that is shipped needs.
//
//   - Every query of the dashboard and of the rules is evaluated, by Prometheus'
//     own engine, over what a worker exposes before and after some traffic. It
//     gives a result, or it is one that is empty while nothing is wrong, and then
//     its metrics are ones that the worker's code names.
//   - Every alert has a section in docs/operations.md, a test that it fires and
//     one that it does not. Those tests are promtool's, in deploy/prometheus/tests.
//   - Every manifest decodes strictly into its type, and refers to names, ports,
//     labels, settings, streams and consumers that exist. The ScaledObject is held
//     against the definition and the scaler that KEDA ships.
//
// The command ask evaluates the dashboard's queries in a running Prometheus.
//
// It has no code of its own beside the package queries, which reads dashboards.
package deploytest
