// Package wire is how the comparison talks to the processes that compute.
//
// Each library runs in a process of its own, so that its threads and its
// environment variables are its own business, and waits on its standard input
// while others are measured. Both sides write lines of JSON:
//
//	comparison                          library
//	                              <--   Hello: name, version, kinds of weights
//	Request{case, at}             -->
//	                              <--   Response: the results at these places
//	Request{case, duration}       -->
//	                              <--   Response: best and median call, number of calls
//	end of input                  -->   exit
//
// A library that cannot be had says why in its Hello and exits. One that cannot
// do a case answers with Unsupported. The same lines are spoken by programs in
// other languages.
package wire
