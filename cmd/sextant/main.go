// SPDX-License-Identifier: Apache-2.0

// Command sextant is the node: `sextant run SERVICE` is one process of it,
// `sextant up` starts them all, and the other verbs are the operator's.
//
// Each process goes by the processors that it has at its start: Go would look for others each
// second that it is awake, in each of ten processes.
//
//go:debug updatemaxprocs=0
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/sextant-node/sextant/cmd/sextant/internal/cli"
)

// ends are the signals that end the program in order. A terminal that goes away is one, or it
// would end the program wherever it is; what nohup starts goes on.
func ends() []os.Signal {
	all := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		all = append(all, syscall.SIGHUP)
	}
	return all
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), ends()...)
	root, exitCode := cli.Root(os.Args[1:]...), cli.ExitCode
	if cli.CalledKubelet(os.Args) {
		root = cli.Kubelet()
		exitCode = func(error) int { return 1 } // a kubelet's only one
	}
	err := root.ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(root.ErrOrStderr(), "%s: %v\n", root.Name(), err)
		os.Exit(exitCode(err))
	}
}
