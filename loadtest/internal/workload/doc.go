// Package workload says what a load test sends, and when.
//
// A [Plan] is the law of a load: how requests arrive ([Arrivals]), how long they
// are ([Law]), and the mix of models, priorities, clients, cancellations and
// deadlines. A [Source] draws its requests one after the other. The same plan,
// seed included, gives the same requests, whatever the server does: arrivals,
// lengths and each choice have random numbers of their own, so that a changed mix
// leaves the arrivals as they were.
//
// Instead of drawing, a source can replay a trace ([ReadTrace]): a file that has
// the time of each request and, where it says so, its model, length and the rest.
//
// Inputs are made to suit a model: words or text for one that reads characters,
// token ids, or bracketed expressions for one that reads trees. A file of inputs
// takes their place.
package workload
