// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/sextant-node/sextant/pkg/rpc"
)

// SystemBus is where the system bus listens (D-Bus Specification, "System
// message bus").
const SystemBus = "/run/dbus/system_bus_socket"

const (
	// greeting is the time a client has to authenticate.
	greeting = 10 * time.Second
	// acceptAgain is the pause after a connection could not be accepted.
	acceptAgain = 100 * time.Millisecond
	// mostClients is how many may be connected at a time. A service has two
	// connections, and a few more while it restarts.
	mostClients = 32
)

// Gate is a socket in front of the system bus.
type Gate struct {
	// Socket the gate listens on; UID is the one that may use it.
	Socket string
	UID    uint32
	// Bus is the socket of the system bus.
	Bus    string
	Policy Policy
	Log    *slog.Logger

	said rate.Sometimes
}

// Policy decides what passes a gate.
type Policy interface {
	// Allow returns why a message must not reach the bus, or nil.
	Allow(m *Message) error
}

// Answerer is a policy that carries out some calls itself, instead of the bus.
type Answerer interface {
	Policy
	// Answer reports whether a call is one of them, and how it ended.
	Answer(ctx context.Context, m *Message) (mine bool, err error)
}

// Run serves until ctx ends.
func (g *Gate) Run(ctx context.Context) error { return g.run(ctx, func() {}) }

// run calls listening when clients can connect.
func (g *Gate) run(ctx context.Context, listening func()) error {
	l, err := listen(g.Socket, g.UID)
	if err != nil {
		return fmt.Errorf("gate to the system bus: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = l.Close() }) // Accept returns
	listening()
	g.said = rate.Sometimes{First: 3, Interval: time.Second}
	slots := make(chan struct{}, mostClients)
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			// For want of files or of memory: who is connected goes on, and others wait in the
			// socket's queue.
			g.warn("gate to the system bus", err)
			select {
			case <-ctx.Done():
			case <-time.After(acceptAgain):
			}
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			g.warn("gate to the system bus", fmt.Errorf("more than %d connections", mostClients))
			_ = conn.Close() // refused
			continue
		}
		clients.Go(func() {
			defer func() { <-slots }()
			if err := g.serve(ctx, conn); err != nil && ctx.Err() == nil {
				g.warn("gate to the system bus", err)
			}
		})
	}
}

// warn logs a client's fault, at most once a second after the first few: clients must
// not fill the log.
func (g *Gate) warn(what string, cause error) {
	g.said.Do(func() { g.Log.Warn(what, "socket", g.Socket, "error", cause.Error()) })
}

func (g *Gate) serve(ctx context.Context, client net.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { _ = client.Close() }) // reading it returns
	peer, err := rpc.Credentials(client)
	if err != nil {
		return err
	}
	if err := g.admit(peer.Uid); err != nil {
		return err
	}
	fromClient := bufio.NewReader(client)
	if err := errors.Join(client.SetDeadline(time.Now().Add(greeting)), welcome(fromClient, client), client.SetDeadline(time.Time{})); err != nil {
		return fmt.Errorf("greeting: %w", err)
	}
	var dialer net.Dialer
	bus, err := dialer.DialContext(ctx, "unix", g.Bus)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = bus.Close() })
	fromBus := bufio.NewReader(bus)
	if err := greet(fromBus, bus); err != nil {
		return fmt.Errorf("system bus: %w", err)
	}
	toClient := &whole{w: client}
	both := errgroup.Group{}
	both.Go(func() error {
		defer cancel()
		for {
			raw, err := readFrame(fromBus, mostOfBus)
			if err != nil {
				return err
			}
			if err := toClient.write(raw); err != nil {
				return err
			}
		}
	})
	both.Go(func() error {
		defer cancel()
		for {
			raw, err := readFrame(fromClient, mostOfClient)
			if err != nil {
				return err
			}
			if err := g.handle(ctx, raw, toClient, bus); err != nil {
				return err
			}
		}
	})
	if err := both.Wait(); !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// handle answers a client's message, or passes it on.
func (g *Gate) handle(ctx context.Context, raw []byte, toClient *whole, bus io.Writer) error {
	m, err := Decode(raw)
	if err != nil {
		return err
	}
	if own, ok := g.Policy.(Answerer); ok {
		if mine, err := own.Answer(ctx, m); mine {
			return answered(toClient, m, err)
		}
	}
	if denied := g.Policy.Allow(m); denied != nil {
		g.warn("refused to ask the system bus", denied)
		return refuse(toClient, m, denied)
	}
	_, err = bus.Write(raw)
	return err
}

// admit reports whether a uid may use the gate.
func (g *Gate) admit(uid uint32) error {
	if uid != g.UID && uid != 0 {
		return fmt.Errorf("uid %d may not use it", uid)
	}
	return nil
}

// refuse answers a call instead of the bus.
func refuse(to *whole, call *Message, cause error) error {
	if call.Type != dbus.TypeMethodCall {
		return cause
	}
	return fail(to, call, theBus+".Error.AccessDenied", "the node's supervisor does not pass on: "+cause.Error())
}

// answered replies to a call that was carried out here, with its result.
func answered(to *whole, call *Message, err error) error {
	if err != nil {
		return fail(to, call, theBus+".Error.Failed", err.Error())
	}
	return reply(to, call, dbus.TypeMethodReply, map[dbus.HeaderField]dbus.Variant{}, nil)
}

func fail(to *whole, call *Message, name, text string) error {
	return reply(to, call, dbus.TypeError, map[dbus.HeaderField]dbus.Variant{
		dbus.FieldErrorName: dbus.MakeVariant(name), dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf("")),
	}, []any{text})
}

func reply(to *whole, call *Message, kind dbus.Type, headers map[dbus.HeaderField]dbus.Variant, body []any) error {
	headers[dbus.FieldReplySerial] = dbus.MakeVariant(call.serial)
	answer := dbus.Message{Type: kind, Flags: dbus.FlagNoReplyExpected, Headers: headers, Body: body}
	var raw bytes.Buffer
	if err := answer.EncodeTo(&raw, binary.LittleEndian); err != nil {
		return err
	}
	// A message must have a serial; godbus sets one only on its own connections.
	binary.LittleEndian.PutUint32(raw.Bytes()[8:], call.serial)
	return to.write(raw.Bytes())
}

// whole writes one message at a time.
type whole struct {
	mu sync.Mutex
	w  io.Writer
}

func (w *whole) write(raw []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.w.Write(raw)
	return err
}

// welcome is the server's half of the greeting (D-Bus Specification, "Authentication
// Protocol"). The client's uid is known from the kernel.
func welcome(from *bufio.Reader, to io.Writer) error {
	if _, err := from.ReadByte(); err != nil { // NUL
		return err
	}
	for range 10 {
		line, err := from.ReadSlice('\n')
		if err != nil {
			return err
		}
		words := strings.Fields(string(line))
		answer := "ERROR"
		switch {
		case len(words) == 1 && words[0] == "BEGIN":
			return nil
		case len(words) == 1 && words[0] == "AUTH":
			answer = "REJECTED EXTERNAL"
		case len(words) == 2 && words[0] == "AUTH":
			answer = "DATA"
		case len(words) > 0 && (words[0] == "AUTH" || words[0] == "DATA"):
			answer = "OK " + strings.Repeat("0", 32)
		}
		if _, err := io.WriteString(to, answer+"\r\n"); err != nil {
			return err
		}
	}
	return errors.New("no BEGIN")
}

// greet is the client's half, with this process's uid.
func greet(from *bufio.Reader, to io.Writer) error {
	uid := hex.EncodeToString([]byte(strconv.Itoa(os.Geteuid())))
	if _, err := io.WriteString(to, "\x00AUTH EXTERNAL "+uid+"\r\n"); err != nil {
		return err
	}
	line, err := from.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(line, []byte("OK ")) {
		return fmt.Errorf("greeting: %q", line)
	}
	_, err = io.WriteString(to, "BEGIN\r\n")
	return err
}
