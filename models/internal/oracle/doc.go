// Package oracle runs graphs of cells the slow and obvious way: one node at a
// time, in float64, following the description of each operation in package
// cellrt word by word. It shares no code with any backend, so what both agree
// on is what the description says. It is for tests and tools only.
package oracle
