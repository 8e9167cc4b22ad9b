// Package queries reads the queries of a Grafana dashboard and fills in its
// variables, so that a program can evaluate what a person would see. Nothing in
// it is safe for concurrent use, and nothing needs to be: all of it is values.
package queries
