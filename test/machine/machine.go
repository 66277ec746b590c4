// SPDX-License-Identifier: Apache-2.0

// Package machine is a whole machine in emulation: a kernel, systemd as PID 1 and
// pure cgroup v2, on a disk that outlives a power cut.
//
// It owns the QEMU process and the two disks in its folder. What happens inside
// is asked of an agent over a virtio port; times inside mean nothing, only order.
// Its network has one address that answers, the API server's and a registry's, and leads nowhere else.
package machine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/sextant-node/sextant/test/machine/wire"
)

// Machine is one machine.
type Machine struct {
	// Dir holds disk.img, payload.img and the console's log.
	Dir string
	// Kernel and Initrd it boots.
	Kernel, Initrd string
	// APIServer and Registry, if any, are where connections to GuestAPIServer and GuestRegistry
	// go, as host:port, and Agent the program that carries them there.
	APIServer, Registry, Agent string
	// Kubelet, if any, is the address of the host, as host:port, that leads to the port of the
	// machine's kubelet.
	Kubelet string
	// Hardware are QEMU's arguments for processors and memory; two and two GiB if none.
	Hardware []string

	cmd   *exec.Cmd
	ended chan struct{}
	conn  net.Conn
	lines *bufio.Reader
	id    int
}

// Disk is the file with the machine's disk.
func (m *Machine) Disk() string { return filepath.Join(m.Dir, "disk.img") }

// GuestAPIServer is the API server, and GuestRegistry the registry, as seen from the machine;
// GuestKubelet is its own kubelet.
const (
	GuestAPIServer = "10.99.0.100:6443"
	GuestRegistry  = "10.99.0.100:5000"
	GuestKubelet   = "10.99.0.2:10250"
)

// Console is the file with everything the machine wrote to its serial console.
func (m *Machine) Console() string { return filepath.Join(m.Dir, "console.log") }

// Boot switches the machine on and waits for the agent. It returns the boot's id.
func (m *Machine) Boot(ctx context.Context) (string, error) {
	console, err := os.OpenFile(m.Console(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return "", err
	}
	defer console.Close() //nolint:errcheck // QEMU has its own descriptor
	socket := filepath.Join(m.Dir, "agent.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return "", err
	}
	defer listener.Close() //nolint:errcheck // it has served
	disk := func(name string, readonly string) string {
		return fmt.Sprintf("file=%s,if=virtio,format=raw,readonly=%s,cache=writeback", filepath.Join(m.Dir, name), readonly)
	}
	network := "user,id=net,restrict=on,ipv6=off,net=10.99.0.0/24,host=10.99.0.1"
	for guest, host := range map[string]string{GuestAPIServer: m.APIServer, GuestRegistry: m.Registry} {
		if host != "" {
			network += ",guestfwd=tcp:" + guest + "-cmd:" + m.Agent + " carry " + host
		}
	}
	if m.Kubelet != "" {
		network += ",hostfwd=tcp:" + m.Kubelet + "-" + GuestKubelet
	}
	hardware := m.Hardware
	if len(hardware) == 0 {
		hardware = []string{"-cpu", "max,la57=off", "-smp", "2", "-m", "2048"}
	}
	m.cmd = exec.Command("qemu-system-x86_64", append(slices.Clone(hardware), "-accel", "tcg,thread=multi",
		"-nodefaults", "-display", "none", "-serial", "stdio", "-no-reboot",
		"-netdev", network, "-device", "virtio-net-pci,netdev=net",
		"-kernel", m.Kernel, "-initrd", m.Initrd, "-append", "root=/dev/vda rw console=ttyS0 panic=-1 net.ifnames=0 mitigations=off cryptomgr.notests no_timer_check "+clock(),
		"-drive", disk("disk.img", "off"), "-drive", disk("payload.img", "on"),
		"-device", "virtio-serial", "-chardev", "socket,id=agent,path="+socket, "-device", "virtserialport,chardev=agent,name=agent")...)
	m.cmd.Stdout, m.cmd.Stderr = console, console
	if err := m.cmd.Start(); err != nil {
		return "", err
	}
	m.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) { _ = cmd.Wait(); close(ended) }(m.cmd, m.ended)
	context.AfterFunc(ctx, func() { _ = listener.Close() })
	if m.conn, err = listener.Accept(); err != nil {
		return "", errors.Join(err, ctx.Err())
	}
	m.lines = bufio.NewReaderSize(m.conn, 1<<20)
	hello, err := m.answer(ctx)
	return hello.Boot, err
}

func (m *Machine) answer(ctx context.Context) (wire.Answer, error) {
	stop := context.AfterFunc(ctx, func() { _ = m.conn.Close() })
	defer stop()
	line, err := m.lines.ReadBytes('\n')
	if err != nil {
		return wire.Answer{}, fmt.Errorf("the machine does not answer: %w", errors.Join(err, ctx.Err()))
	}
	var a wire.Answer
	return a, json.Unmarshal(line, &a)
}

// commandLimit is how long one script may take.
const commandLimit = 30 * time.Minute

// Do runs a script inside and returns what it wrote.
func (m *Machine) Do(ctx context.Context, script string) (string, error) {
	m.id++
	request, err := json.Marshal(wire.Request{ID: m.id, Script: script, Seconds: int(commandLimit.Seconds())})
	if err != nil {
		return "", err
	}
	if _, err := m.conn.Write(append(request, '\n')); err != nil {
		return "", err
	}
	for {
		a, err := m.answer(ctx)
		switch {
		case err != nil:
			return "", fmt.Errorf("%s: %w", script, err)
		case a.ID != m.id:
			continue // the agent was started anew, or answers what nobody waits for
		case a.Error != "":
			return a.Out, fmt.Errorf("%s: %s\n%s", script, a.Error, a.Out)
		}
		return a.Out, nil
	}
}

// Cut ends the machine as a power cut does.
func (m *Machine) Cut() {
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Kill() // gone already is as good
	<-m.ended
	if m.conn != nil {
		_ = m.conn.Close()
	}
}

// Off is closed when the machine has switched itself off.
func (m *Machine) Off() <-chan struct{} { return m.ended }
