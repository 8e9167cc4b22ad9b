// Package record gathers how requests ended, and says it in the fields that
// vLLM's "bench serve" writes, so that scripts which read those read these.
//
// A [Recorder] has a window of time. Requests that were due in it count, however
// late they end; those before it are warm-up. Throughput counts what ended within
// the window, whenever it was due. Latencies go into histograms of three
// significant digits, an error below 0.1 %, for all requests and for each model,
// priority, client and path.
//
// # Terms
//
//   - ttft: from when the request was due to its first token.
//   - tpot: from the first token to the end, per token after the first.
//   - itl: between two frames with tokens, divided by the tokens of the second,
//     once for each of these tokens.
//   - e2el: from when the request was due to its terminal frame.
//
// A request without tokens, as a classification or one in mode final, has no ttft,
// tpot and itl. A percentile is left out unless at least five values lie above it.
// Goodput counts the requests that ended well in the window and within all bounds that
// are set; kept_bounds those that were due in it.
//
// A request that its deadline cut off has failed, though it has a final: its tokens
// are not all there, and the deadline would pass for its latency. One that was
// cancelled as the plan says has neither completed nor failed.
package record
