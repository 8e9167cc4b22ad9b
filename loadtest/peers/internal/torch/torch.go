package torch

import (
	_ "embed" // for the program
	"os"
	"os/exec"
	"strconv"
)

//go:embed worker.py
var program string

// The Pythons that are tried, Debian's first: its modules are packages of the
// distribution.
const (
	systemPython = "/usr/bin/python3"
	anyPython    = "python3"
)

// Command returns the command that computes with a number of threads. The
// environment variable PYTHON names another Python to do it with.
func Command(threads int) []string {
	python := os.Getenv("PYTHON")
	if python == "" {
		python = anyPython
		if path, err := exec.LookPath(systemPython); err == nil {
			python = path
		}
	}
	return []string{python, "-c", program, strconv.Itoa(threads)}
}
