// Package chaos holds the test that breaks everything at once, and nothing else.
//
// TestChaos has the same requests answered twice. The calm run has one server
// and one worker, and says what is right: cells are deterministic, so every
// request has one answer, to the bit. The chaos run has a cluster of three server
// processes and three worker processes. While clients send the requests,
//
//   - a worker is killed (SIGKILL) and started again, every few seconds;
//   - a worker is stopped (SIGSTOP) for longer than its leases last, and goes on
//     as if nothing had been;
//   - a server is killed or shut down and started again, one at a time, the next
//     one when the cluster has recovered;
//   - deliveries are duplicated and delayed: somebody who holds no lease hands
//     back those of others, which the server honours;
//   - clients publish requests a second time.
//
// Afterwards each request has exactly one stored final, its client has seen one
// terminal frame and a text without a gap, both equal to the calm run's, the
// queue is empty, and the processes hold nothing: no run, no goroutine, no file.
//
//	go test ./internal/chaos -run TestChaos                                          # two minutes
//	go test ./internal/chaos -run TestChaos -timeout 60m -chaos.full -chaos.seed 1   # 5,000 requests
//
// TestManyRestarts ends one worker again and again, and looks for what that leaves
// behind.
//
// TestCancelStorm cancels a thousand requests at random moments beside fifty that
// must not notice.
//
// TestTwentyUpgrades goes back and forth between two versions of a model under a
// constant load, TestFlippedBitNeverServes deploys versions that cannot be served,
// and TestCanary gives a new version a share of the requests and then has it fail:
// workers and the command line are processes, and the models are pushed.
//
//	go test ./internal/chaos -run TestTwentyUpgrades -timeout 30m -chaos.full -v     # twenty, and how long requests took
//
// TestKilledAnywhere kills who pushes, who deploys, a worker and the server in the
// middle of a push, of a deployment and of loading, and looks for what is half there.
//
// TestFourHundredMegabytes and TestTenThroughThree hold workers to their budget.
//
// A seed chooses the requests and the faults. The moments differ all the same,
// since processes run as the machine lets them; a failure says its seed.
package chaos
