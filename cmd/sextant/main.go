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

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
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
