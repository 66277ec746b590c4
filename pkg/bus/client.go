// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/wire"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
)

// ClientConfig is how a service reaches the bus.
type ClientConfig struct {
	Service house.Service
	// AddressFile tells the embedded server's URL; it is read at each dial, so
	// a bus that comes back elsewhere is found.
	AddressFile string
	// URL of a user's own NATS server instead.
	URL string
	// KeyFile is the service's NKey seed.
	KeyFile string
	// Connected is called at each connection; may be nil.
	Connected func(*Client)
	// Ping is how often the server is asked whether it lives; one that has not
	// answered by the next time is left. 4 s when zero.
	Ping time.Duration
	Log  *slog.Logger
}

// Client announces and listens. The nil client is the bus switched off.
type Client struct {
	cfg  ClientConfig
	conn *nats.Conn
	// dialled is the address of the present connection, or of the last one.
	dialled atomic.Value

	mu        sync.Mutex
	listeners map[int]func(feed.Revision)
	next      int
}

// Connect begins to connect and returns at once. Its only errors are of
// configuration; a server that is away is waited for, for ever.
func Connect(cfg ClientConfig) (*Client, error) {
	cfg.Ping = cmp.Or(cfg.Ping, 4*time.Second)
	c := &Client{cfg: cfg, listeners: map[int]func(feed.Revision){}}
	key := nats.Option(func(o *nats.Options) error {
		// The seed is read when asked, not kept in memory.
		o.SignatureCB = func(nonce []byte) ([]byte, error) { return sign(cfg.KeyFile, nonce) }
		return nil
	})
	options := []nats.Option{
		nats.Name(string(cfg.Service)), key,
		nats.MaxReconnects(-1), nats.CustomReconnectDelay(reconnectDelay),
		nats.RetryOnFailedConnect(true), nats.ReconnectBufSize(-1), nats.IgnoreAuthErrorAbort(),
		nats.Timeout(2 * time.Second), nats.PingInterval(cfg.Ping), nats.MaxPingsOutstanding(1),
		nats.SetCustomDialer(c),
		nats.ConnectHandler(c.connected),
		nats.ReconnectHandler(c.connected),
		// Who waits for announcements has to look on its own from now on.
		nats.DisconnectErrHandler(func(*nats.Conn, error) { c.lookAll() }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			cfg.Log.Debug("bus", "error", err.Error())
			if errors.Is(err, nats.ErrSlowConsumer) { // some have been dropped
				c.lookAll()
			}
		}),
	}
	target := cfg.URL
	if target == "" {
		target = "nats://127.0.0.1:1" // Dial looks the real one up
	}
	public, err := publicKey(cfg.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("bus key %s: %w", cfg.KeyFile, err)
	}
	options = append(options, func(o *nats.Options) error { o.Nkey = public; return nil })
	c.mu.Lock() // handlers wait until conn is set
	defer c.mu.Unlock()
	if c.conn, err = nats.Connect(target, options...); err != nil {
		return nil, fmt.Errorf("bus: %w", err)
	}
	return c, nil
}

// reconnectDelay is the pause after a number of failed dials: short at first, because a
// killed bus is back soon, then longer, for a bus that is switched off.
func reconnectDelay(attempts int) time.Duration {
	pause := min(time.Duration(attempts)*20*time.Millisecond, 500*time.Millisecond)
	return pause + rand.N(pause/4+time.Millisecond)
}

// subscribing is how long the server may take to have what was subscribed to.
const subscribing = 5 * time.Second

// connected tells everybody who listens to look: something may have been missed,
// until the server has the subscriptions.
func (c *Client) connected(conn *nats.Conn) {
	if err := conn.FlushTimeout(subscribing); err != nil {
		c.cfg.Log.Debug("bus", "error", err.Error())
	}
	c.lookAll()
	if c.cfg.Connected != nil {
		c.cfg.Connected(c)
	}
}

// Dial implements nats.CustomDialer.
func (c *Client) Dial(network, address string) (net.Conn, error) {
	if c.cfg.URL == "" {
		var err error
		if address, err = c.address(); err != nil {
			return nil, err
		}
	}
	c.dialled.Store(address)
	return net.DialTimeout(network, address, 2*time.Second)
}

// address is where the embedded server listens, or did before it went.
func (c *Client) address() (string, error) {
	data, err := os.ReadFile(c.cfg.AddressFile)
	if err != nil {
		return "", err
	}
	u, err := url.Parse(strings.TrimSpace(string(data)))
	if err != nil {
		return "", err
	}
	return u.Host, nil
}

// elsewhere reports whether the embedded server listens at another place than the one that
// is connected to.
func (c *Client) elsewhere() bool {
	if c.cfg.URL != "" {
		return false
	}
	address, err := c.address()
	return err == nil && address != c.dialled.Load()
}

// Connected reports whether announcements travel now.
func (c *Client) Connected() bool { return c != nil && c.conn != nil && c.conn.IsConnected() }

// Close leaves the bus.
func (c *Client) Close() {
	if c != nil && c.conn != nil {
		c.conn.Close()
	}
}

// Announce implements feed.Announcer; while the bus is away it does nothing.
func (c *Client) Announce(_ context.Context, name, key string, revision feed.Revision) {
	if !c.Connected() {
		return
	}
	key = key[:min(len(key), longKey)]
	c.publish(subject(name, key), &feedv1.Announcement{Feed: name, Key: key, Revision: revision.Proto()})
}

// Hello publishes the service's heartbeat, on the bus of this node: any local user may
// listen at the port of a bus that is away, and would keep who connects there.
func (c *Client) Hello(hello proto.Message) {
	if !c.Connected() {
		return
	}
	if c.elsewhere() {
		c.cfg.Log.Warn("bus", "error", "the server at "+fmt.Sprint(c.dialled.Load())+" is not the node's")
		if err := c.conn.ForceReconnect(); err != nil {
			c.cfg.Log.Debug("bus", "error", err.Error())
		}
		return
	}
	c.publish(HelloSubject(c.cfg.Service), hello)
}

func (c *Client) publish(subject string, m proto.Message) {
	data, err := wire.Marshal(m)
	if err != nil {
		c.cfg.Log.Error("bus message", "subject", subject, "error", err.Error())
		return
	}
	if err := c.conn.Publish(subject, data); err != nil {
		c.cfg.Log.Debug("announcement lost", "subject", subject, "error", err.Error())
	}
}

// Listen implements feed.Listener.
func (c *Client) Listen(name string, look func(feed.Revision)) (stop func()) {
	if c == nil {
		return func() {}
	}
	c.mu.Lock()
	id := c.next
	c.next++
	c.listeners[id] = look
	c.mu.Unlock()
	sub, err := c.conn.Subscribe(prefix+name+".>", func(m *nats.Msg) { look(announced(m.Data)) })
	if err != nil {
		c.cfg.Log.Error("bus subscription", "feed", name, "error", err.Error())
	}
	// Announcements before the server has the subscription are lost: pull once it has.
	go func() {
		if err := c.conn.FlushTimeout(subscribing); err == nil {
			look(feed.Revision{})
		}
	}()
	return func() {
		c.mu.Lock()
		delete(c.listeners, id)
		c.mu.Unlock()
		if sub != nil && !c.conn.IsClosed() {
			if err := sub.Unsubscribe(); err != nil {
				c.cfg.Log.Debug("bus unsubscribe", "feed", name, "error", err.Error())
			}
		}
	}
}

// announced is the revision in an announcement; zero, which causes a pull, if it cannot
// be read.
func announced(data []byte) feed.Revision {
	var a feedv1.Announcement
	if err := proto.Unmarshal(data, &a); err != nil {
		return feed.Revision{}
	}
	return feed.RevisionFrom(a.GetRevision())
}

// Follow hands every message on the bus to f, for the operator's `watch`.
func (c *Client) Follow(f func(subject string, data []byte)) error {
	_, err := c.conn.Subscribe(prefix+">", func(m *nats.Msg) { f(m.Subject, m.Data) })
	return err
}

func (c *Client) lookAll() {
	c.mu.Lock()
	looks := slices.Collect(maps.Values(c.listeners))
	c.mu.Unlock()
	for _, look := range looks {
		look(feed.Revision{})
	}
}
