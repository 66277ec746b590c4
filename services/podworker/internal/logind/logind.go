// SPDX-License-Identifier: Apache-2.0

// Package logind is the way to logind: whether the machine is about to be shut
// down, and the lock that delays it (systemd-inhibit(1), org.freedesktop.login1(5)).
//
// It speaks D-Bus to a gate of the node's supervisor, which passes what is read
// and, being root, carries out the rest: it keeps the lock, which therefore outlives
// this process. Nothing is remembered here.
package logind

import (
	"context"
	"fmt"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	login  = "org.freedesktop.login1"
	host   = login + ".Manager"
	object = dbus.ObjectPath("/org/freedesktop/login1")
	// gate is what the supervisor calls its own orders.
	gate       = "io.github.sextant_node.Gate"
	gateObject = dbus.ObjectPath("/")
)

// timeout of one request; raising the delay waits for logind to read its files.
const timeout = 10 * time.Second

// Conn is one connection. It is good until Changed is closed.
type Conn struct {
	conn    *dbus.Conn
	changed chan *dbus.Signal
}

// Connect connects to a gate by its D-Bus address, and begins to listen.
func Connect(ctx context.Context, address string) (*Conn, error) {
	conn, err := dbus.Connect(address, dbus.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("logind: %w", err)
	}
	c := &Conn{conn: conn, changed: make(chan *dbus.Signal, 4)}
	conn.Signal(c.changed)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err = conn.AddMatchSignalContext(ctx, dbus.WithMatchObjectPath(object), dbus.WithMatchInterface(host), dbus.WithMatchMember("PrepareForShutdown"))
	if err != nil {
		_ = conn.Close() // never of use
		return nil, fmt.Errorf("logind: %w", err)
	}
	return c, nil
}

// Changed says that Preparing may answer otherwise; it is closed with the
// connection.
func (c *Conn) Changed() <-chan *dbus.Signal { return c.changed }

// Preparing reports whether the machine is about to go down, and waits for those who
// delay it.
func (c *Conn) Preparing(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var v dbus.Variant
	err := c.conn.Object(login, object).CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, host, "PreparingForShutdown").Store(&v)
	if err != nil {
		return false, fmt.Errorf("logind: %w", err)
	}
	preparing, ok := v.Value().(bool)
	if !ok {
		return false, fmt.Errorf("logind: PreparingForShutdown is of type %s", v.Signature())
	}
	return preparing, nil
}

// Delay sees to it that logind delays a shutdown by at least need. If it does not, it
// is configured to delay by up to want.
func (c *Conn) Delay(ctx context.Context, need, want time.Duration) error {
	return c.order(ctx, "Delay", uint64(need/time.Microsecond), uint64(want/time.Microsecond))
}

// Hold delays a shutdown until Release; again is no harm.
func (c *Conn) Hold(ctx context.Context) error { return c.order(ctx, "Hold") }

// Release lets the machine go down.
func (c *Conn) Release(ctx context.Context) error { return c.order(ctx, "Release") }

// Close ends the connection; what is held stays held.
func (c *Conn) Close() error { return c.conn.Close() }

func (c *Conn) order(ctx context.Context, name string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := c.conn.Object(gate, gateObject).CallWithContext(ctx, gate+"."+name, 0, args...).Err; err != nil {
		return fmt.Errorf("shutdown delay: %w", err)
	}
	return nil
}
