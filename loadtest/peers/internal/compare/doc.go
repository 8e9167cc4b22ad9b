// Package compare measures cellmq's CPU backend and other libraries side by
// side.
//
//	for each number of threads      a process per library
//	  for each shape and weights    every library packs its weights
//	    for each number of rows     results are checked, then
//	      for each round            one library after the other is timed, in
//	                                turn first, with a pause in between
//
// What disturbs the machine for a while disturbs all libraries, and threads
// that spin after a call have stopped before the next library's turn. Of each
// measurement the quickest call and the median are kept: the median over the
// rounds of the rounds' medians.
//
// A library whose results are wrong is not timed. One that is not available is
// part of the report, with the reason.
package compare
