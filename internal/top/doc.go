// Package top shows the workers that run, in a terminal: cellmq top.
//
//	broker.WatchLive --> Fleet.Take --> Fleet.View --> Screen.Draw --> terminal
//	  (payloads)         (two last      (rates of       (lines of
//	                      snapshots)     a moment)       a size)
//
// One goroutine, that of [Run], has the fleet, the screen and the terminal;
// snapshots, keys and signals come to it by channels. So a snapshot that breaks it
// breaks it where the terminal is given back. A [Fleet] and a [Screen] know no
// terminal, no clock and no connection: what is shown follows from what they were
// given.
//
// Names come from other machines. [broker.DecodeSnapshot] refuses those with
// control characters, and everything that is drawn goes through [clean] all the
// same, so that no name reaches the terminal as an order.
package top
