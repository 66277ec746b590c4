// SPDX-License-Identifier: Apache-2.0

// Package host reads the addresses of the machine.
//
// It keeps the last reading, renewed in the background: a name server that does not
// answer delays that and nothing else.
package host

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"reflect"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/sextant-node/sextant/pkg/service"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/services/status/internal/nodestatus"
)

const (
	// period of reading.
	period = time.Minute
	// lookup bounds the question to the name server.
	lookup = 2 * time.Second
)

// Reader reads the machine.
type Reader struct {
	log     *slog.Logger
	changed func()
	again   signal.Signal

	mu   sync.Mutex
	name string
	last *nodestatus.Host
}

// NewReader makes a reader; changed is called after every reading that differs.
func NewReader(log *slog.Logger, changed func()) *Reader {
	return &Reader{log: log, changed: changed, again: signal.New()}
}

// Name says which name the node goes by; a new one is looked up soon.
func (r *Reader) Name(name string) {
	r.mu.Lock()
	same := r.name == name
	r.name = name
	r.mu.Unlock()
	if same {
		return
	}
	r.again.Send()
}

// Host is the last reading, nil before the first.
func (r *Reader) Host() *nodestatus.Host {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// Run reads until ctx ends.
func (r *Reader) Run(ctx context.Context) error {
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		r.mu.Lock()
		name := r.name
		r.mu.Unlock()
		if name != "" {
			now := r.read(ctx, name)
			r.mu.Lock()
			differs := r.last == nil || !reflect.DeepEqual(*r.last, now)
			r.last = &now
			r.mu.Unlock()
			if differs && r.changed != nil {
				r.changed()
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-r.again:
		}
	}
}

func (r *Reader) read(ctx context.Context, name string) nodestatus.Host {
	var h nodestatus.Host
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		r.log.Warn("interfaces not read", service.KeyError, err.Error())
	}
	for _, a := range addrs {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			h.Interfaces = append(h.Interfaces, prefix.Addr().Unmap())
		}
	}
	ctx, cancel := context.WithTimeout(ctx, lookup)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		r.log.Debug("node name does not resolve", "name", name, service.KeyError, err.Error())
	}
	h.Resolved = found
	h.Route4 = r.route(net.IPv4zero, true)
	h.Route6 = r.route(net.IPv6zero, false)
	return h
}

// route is the address of the interface the default route of a family goes by.
func (r *Reader) route(family net.IP, want4 bool) netip.Addr {
	ip, err := utilnet.ResolveBindAddress(family)
	if err != nil {
		r.log.Debug("no default route", "family", family.String(), service.KeyError, err.Error())
		return netip.Addr{}
	}
	addr, ok := netip.AddrFromSlice(ip)
	if addr = addr.Unmap(); !ok || addr.Is4() != want4 {
		return netip.Addr{}
	}
	return addr
}
