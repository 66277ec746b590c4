// SPDX-License-Identifier: Apache-2.0

package localruntime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/pattern"
)

// taskDir is where containerd keeps the bundles of running containers, below its
// state directory, one directory per namespace and container.
const taskDir = "io.containerd.runtime.v2.task"

var socketAddress = pattern.Lazy(`unix://([^"\s]+)`)

// shimSockets lists the sockets of the shims as their bundles name them: they
// lie outside the state directory. 1.x writes the file address, 2.x
// bootstrap.json.
func shimSockets(state string) []string {
	var found []string
	for _, name := range []string{"address", "bootstrap.json"} {
		files, _ := filepath.Glob(filepath.Join(state, taskDir, "*", "*", name))
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				continue // its container went away
			}
			if m := socketAddress().FindSubmatch(b); m != nil {
				found = append(found, string(m[1]))
			}
		}
	}
	return found
}

// killShims ends every shim that was started for the containerd at socket and
// everything that runs below it. A shim reaps its containers, so they are its
// descendants whatever they did to their own process tree.
func killShims(ctx context.Context, socket string) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var left []int
	err := poll(ctx, func() bool {
		left = shimsOf(socket)
		for _, shim := range left {
			for _, pid := range append(descendants(shim), shim) {
				_ = unix.Kill(pid, unix.SIGKILL) // gone already is as good
			}
		}
		return len(left) == 0
	})
	if err != nil {
		return fmt.Errorf("shims %v do not end: %w", left, err)
	}
	return nil
}

// shimsOf finds the shims by the containerd address in their arguments.
func shimsOf(socket string) []int {
	var found []int
	for _, pid := range allPIDs() {
		b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err != nil {
			continue
		}
		args := strings.Split(string(bytes.TrimRight(b, "\x00")), "\x00")
		if !strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") {
			continue
		}
		for i, a := range args[:len(args)-1] {
			if a == "-address" && args[i+1] == socket {
				found = append(found, pid)
				break
			}
		}
	}
	return found
}

// descendants lists the processes below pid, the deepest last.
func descendants(pid int) []int {
	children := map[int][]int{}
	for _, p := range allPIDs() {
		if parent, _, ok := stat(p); ok {
			children[parent] = append(children[parent], p)
		}
	}
	found := append([]int(nil), children[pid]...)
	for i := 0; i < len(found); i++ {
		found = append(found, children[found[i]]...)
	}
	return found
}

func allPIDs() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// removeCNICache deletes the results that the CNI library keeps per attachment,
// outside every configurable directory, and the directories if that empties
// them.
func removeCNICache(network string) error {
	const cache = "/var/lib/cni"
	files, err := filepath.Glob(filepath.Join(cache, "results", network+"-*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range files {
		id, _ := strings.CutSuffix(strings.TrimPrefix(filepath.Base(f), network+"-"), "-eth0")
		errs = append(errs, removeIfThere(f),
			removeIfThere(filepath.Join(cache, "results", "cni-loopback-"+id+"-lo")))
	}
	_ = unix.Rmdir(filepath.Join(cache, "results")) // not empty: another network's
	_ = unix.Rmdir(cache)
	return errors.Join(errs...)
}
