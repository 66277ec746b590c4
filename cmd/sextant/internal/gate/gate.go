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
	"io/fs"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// SystemBus is where the system bus listens (D-Bus Specification, "System
// message bus").
const SystemBus = "/run/dbus/system_bus_socket"

// greeting is how long a client may take to say who it is.
const greeting = 10 * time.Second

// Gate is a socket in front of the system bus.
type Gate struct {
	// Socket the gate listens on; UID is the one that may use it.
	Socket string
	UID    uint32
	// Bus is the socket of the system bus.
	Bus    string
	Policy Policy
	Log    *slog.Logger
}

// Policy says what passes a gate.
type Policy interface {
	// Allow returns why a message must not reach the bus, or nil.
	Allow(m *dbus.Message) error
}

// Answerer is a policy that carries some orders out itself, in the bus's stead.
type Answerer interface {
	Policy
	// Answer reports whether a call is one of them, and how it ended.
	Answer(ctx context.Context, m *dbus.Message) (mine bool, err error)
}

// Run serves until ctx ends.
func (g *Gate) Run(ctx context.Context) error { return g.run(ctx, func() {}) }

// run calls listening when clients may come.
func (g *Gate) run(ctx context.Context, listening func()) error {
	if err := os.Remove(g.Socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", g.Socket)
	if err != nil {
		return fmt.Errorf("gate to the system bus: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = l.Close() }) // Accept returns
	if err := errors.Join(os.Chmod(g.Socket, 0o600), os.Chown(g.Socket, int(g.UID), -1)); err != nil {
		return errors.Join(err, l.Close())
	}
	listening()
	var clients sync.WaitGroup
	defer clients.Wait()
	for {
		conn, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("gate to the system bus: %w", err)
		}
		clients.Go(func() {
			if err := g.serve(ctx, conn); err != nil && ctx.Err() == nil {
				g.Log.Warn("gate to the system bus", "error", err.Error())
			}
		})
	}
}

func (g *Gate) serve(ctx context.Context, client net.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { _ = client.Close() }) // reading it returns
	uid, err := peer(client)
	if err != nil {
		return err
	}
	if err := g.admit(uid); err != nil {
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
		return messages(fromBus, func(_ *dbus.Message, raw []byte) error { return toClient.write(raw) })
	})
	both.Go(func() error {
		defer cancel()
		return messages(fromClient, func(m *dbus.Message, raw []byte) error {
			if own, ok := g.Policy.(Answerer); ok {
				if mine, err := own.Answer(ctx, m); mine {
					return answered(toClient, m, err)
				}
			}
			if denied := g.Policy.Allow(m); denied != nil {
				g.Log.Warn("refused to ask the system bus", "for", denied.Error())
				return refuse(toClient, m, denied)
			}
			_, err := bus.Write(raw)
			return err
		})
	})
	if err := both.Wait(); !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// admit tells whether a uid may use the gate.
func (g *Gate) admit(uid uint32) error {
	if uid != g.UID && uid != 0 {
		return fmt.Errorf("uid %d may not use it", uid)
	}
	return nil
}

// messages hands on each message, read and as it came, until reading fails.
func messages(from io.Reader, each func(*dbus.Message, []byte) error) error {
	for {
		var raw bytes.Buffer
		m, err := dbus.DecodeMessage(io.TeeReader(from, &raw))
		if err != nil {
			return err
		}
		if err := each(m, raw.Bytes()); err != nil {
			return err
		}
	}
}

// refuse answers a call in the bus's stead.
func refuse(to *whole, call *dbus.Message, cause error) error {
	if call.Type != dbus.TypeMethodCall {
		return cause
	}
	return fail(to, call, theBus+".Error.AccessDenied", "the node's supervisor does not pass on: "+cause.Error())
}

// answered tells how a call that was carried out here has ended.
func answered(to *whole, call *dbus.Message, err error) error {
	if err != nil {
		return fail(to, call, theBus+".Error.Failed", err.Error())
	}
	return reply(to, call, dbus.TypeMethodReply, map[dbus.HeaderField]dbus.Variant{}, nil)
}

func fail(to *whole, call *dbus.Message, name, text string) error {
	return reply(to, call, dbus.TypeError, map[dbus.HeaderField]dbus.Variant{
		dbus.FieldErrorName: dbus.MakeVariant(name), dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf("")),
	}, []any{text})
}

func reply(to *whole, call *dbus.Message, kind dbus.Type, headers map[dbus.HeaderField]dbus.Variant, body []any) error {
	answer := *call // with its serial, for a message must have one
	answer.Type, answer.Flags = kind, dbus.FlagNoReplyExpected
	headers[dbus.FieldReplySerial] = dbus.MakeVariant(call.Serial())
	answer.Headers, answer.Body = headers, body
	var raw bytes.Buffer
	if err := answer.EncodeTo(&raw, binary.LittleEndian); err != nil {
		return err
	}
	return to.write(raw.Bytes())
}

// called is where a call goes.
func called(m *dbus.Message) (destination string, path dbus.ObjectPath, method string) {
	destination, _ = header[string](m, dbus.FieldDestination)
	path, _ = header[dbus.ObjectPath](m, dbus.FieldPath)
	iface, _ := header[string](m, dbus.FieldInterface)
	member, _ := header[string](m, dbus.FieldMember)
	return destination, path, iface + "." + member
}

func header[T any](m *dbus.Message, field dbus.HeaderField) (value T, ok bool) {
	value, ok = m.Headers[field].Value().(T)
	return value, ok
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

// welcome is the server's half of the greeting (D-Bus Specification,
// "Authentication Protocol"). The kernel said who the client is.
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

func peer(conn net.Conn) (uid uint32, err error) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("a connection of type %T", conn)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, credErr); err != nil {
		return 0, err
	}
	return cred.Uid, nil
}
