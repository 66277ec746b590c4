// SPDX-License-Identifier: Apache-2.0

// Command agent runs inside the emulated machine and does what the test outside
// says over a virtio port: one request a line, one answer a line, in order.
//
// Outside, `agent carry HOST:PORT` carries its standard input and output to an
// address: the emulator runs one for each connection to the API server.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/sextant-node/sextant/test/machine/wire"
)

const port = "/dev/virtio-ports/agent"

func main() {
	if len(os.Args) == 3 && os.Args[1] == "carry" {
		carry(os.Args[2])
		return
	}
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
}

func serve() error {
	f, err := os.OpenFile(port, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close() //nolint:errcheck // it ends with the process
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	out := json.NewEncoder(f)
	if err := out.Encode(wire.Answer{Boot: strings.TrimSpace(string(boot))}); err != nil {
		return err
	}
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			time.Sleep(100 * time.Millisecond) // nobody at the other end yet
			continue
		}
		if err != nil {
			return err
		}
		var r wire.Request
		if err := json.Unmarshal(line, &r); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		if err := out.Encode(do(r)); err != nil {
			return err
		}
	}
}

// carry ends when either side does. Its standard error is the connection as well.
func carry(address string) {
	to, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	ended := make(chan struct{}, 2)
	go func() { _, _ = io.Copy(to, os.Stdin); ended <- struct{}{} }()  // a broken connection ends
	go func() { _, _ = io.Copy(os.Stdout, to); ended <- struct{}{} }() // like a closed one
	<-ended
}

func do(r wire.Request) wire.Answer {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.Seconds)*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", r.Script)
	cmd.Env = append(os.Environ(), "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "DEBIAN_FRONTEND=noninteractive")
	cmd.WaitDelay = 5 * time.Second // what it leaves behind may hold its output
	text, err := cmd.CombinedOutput()
	a := wire.Answer{ID: r.ID, Out: string(text)}
	if err != nil {
		a.Error = err.Error()
	}
	return a
}
