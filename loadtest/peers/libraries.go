package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/cellmq/cellmq/loadtest/peers/internal/cellular"
	"github.com/cellmq/cellmq/loadtest/peers/internal/compare"
	"github.com/cellmq/cellmq/loadtest/peers/internal/onednn"
	"github.com/cellmq/cellmq/loadtest/peers/internal/onnx"
	"github.com/cellmq/cellmq/loadtest/peers/internal/openblas"
	"github.com/cellmq/cellmq/loadtest/peers/internal/torch"
	"github.com/cellmq/cellmq/loadtest/peers/internal/wire"
)

// workerCommand is the first argument of a process that computes; the library
// and the number of threads follow.
const workerCommand = "worker"

// work computes with a library of this program until stdin ends.
func work(args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) != 2 {
		return errors.New("a worker has a library and a number of threads")
	}
	threads, err := strconv.Atoi(args[1])
	if err != nil {
		return fmt.Errorf("threads: %w", err)
	}
	lib, err := open(args[0], threads)
	if err != nil {
		return err
	}
	return wire.Serve(stdin, stdout, lib)
}

// open returns a library of this program.
func open(name string, threads int) (wire.Library, error) {
	switch name {
	case "cellmq":
		return cellular.Open(threads), nil
	case "openblas":
		return openblas.Open(threads), nil
	case "onednn":
		return onednn.Open(threads), nil
	case "onnxruntime":
		return onnx.Open(threads), nil
	default:
		return nil, fmt.Errorf("no library %q", name)
	}
}

// contenders returns how to start the libraries that were asked for.
func (s settings) contenders() ([]compare.Contender, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	var out []compare.Contender
	for _, name := range s.libraries {
		library, kernels, _ := strings.Cut(name, ":")
		if kernels != "" && library != "openblas" && library != "cellmq" {
			return nil, fmt.Errorf("library %q: only openblas and cellmq let one choose their kernels", name)
		}
		command := func(threads int) []string { return []string{program, workerCommand, library, strconv.Itoa(threads)} }
		switch library {
		case "cellmq", "openblas", "onednn", "onnxruntime":
		case "torch":
			command = torch.Command
		default:
			return nil, fmt.Errorf("no library %q", name)
		}
		out = append(out, compare.Contender{Name: name, Command: func(threads int) ([]string, []string) {
			return command(threads), environment(os.Environ(), threads, library, kernels)
		}})
	}
	return out, nil
}

// environment returns env with what tells the libraries how many threads to
// use, and OpenBLAS and cellmq which kernels: those of their choice if kernels
// is empty.
func environment(env []string, threads int, library, kernels string) []string {
	n := strconv.Itoa(threads)
	ours := map[string]string{
		"OMP_NUM_THREADS": n, "OPENBLAS_NUM_THREADS": n,
		"OPENBLAS_CORETYPE": "", "OPENBLAS_L2_SIZE": "", "CELLMQ_ISA": "",
	}
	switch library {
	case "openblas":
		ours["OPENBLAS_CORETYPE"] = kernels
	case "cellmq":
		ours["CELLMQ_ISA"] = kernels
	}
	out := slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		_, found := ours[name]
		return found
	})
	for name, value := range ours {
		if value != "" {
			out = append(out, name+"="+value)
		}
	}
	return out
}
