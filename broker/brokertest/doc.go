// Package brokertest starts real NATS servers for tests: JetStream on files in
// the test's own directory, a random port of the loopback interface.
//
// [Server] is one server within the test's process. [Cluster] is several, each
// a process of its own, so that a test can kill one as a power cut would: the
// test binary starts itself again, and its TestMain begins with [Main], which in
// such a process is the server. [Start] does the same for other roles that a test
// wants to kill, such as a worker.
package brokertest
