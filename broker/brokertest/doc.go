// Package brokertest starts real NATS servers for tests: JetStream on files in
// the test's own directory, a random port of the loopback interface.
package brokertest
