// SPDX-License-Identifier: Apache-2.0

// Command pause is process 1 of a pod sandbox: it holds the namespaces, reaps
// the orphans of a shared process namespace, and ends when it is told to.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	end := make(chan os.Signal, 1)
	child := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	signal.Notify(child, syscall.SIGCHLD)
	for {
		// Children that ended before the handler was there are reaped by the
		// first round; one signal may stand for many children.
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
		select {
		case <-end:
			return
		case <-child:
		}
	}
}
