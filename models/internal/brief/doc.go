// Package brief keeps the texts of errors short, whatever a file holds: it
// clips what a text repeats of its input and lists only the first of many
// errors. An error's chain stays whole.
package brief
