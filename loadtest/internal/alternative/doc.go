// Package alternative puts the same load on cellmq and on what else could serve
// the same models, and reports both.
//
// The alternative is a server of loadtest/alternatives in processes of its own
// ([Start]), and a [Client] that gives each request to the process that has the
// fewest under way. The client stands where [ask.Client] stands for cellmq, so
// that the load, its clock and its report are those of package load for both.
//
// [Compare] goes through the models one by one. Both systems are started, their
// answers to the same requests are compared, and then they take turns, while the
// other one is idle: a closed loop that finds what they can do at most, and Poisson
// arrivals at the same rates, which are shares of what the faster one can do.
// Figures are medians over the rounds.
//
// On the wire are a length of four bytes, big-endian, and so many bytes of JSON:
//
//	{"id":1,"input":"hello","max_tokens":16}
//	{"id":1,"text":"...","input_tokens":5,"output_tokens":16}   or {"id":1,"error":"..."}
package alternative
