// SPDX-License-Identifier: Apache-2.0

package bus_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"google.golang.org/protobuf/proto"

	"github.com/sextant-node/sextant/pkg/bus"
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
	nodev1 "github.com/sextant-node/sextant/proto/sextant/node/v1"
)

var quiet = slog.New(slog.DiscardHandler)

type lab struct {
	t            *testing.T
	dir, address string
}

func newLab(t *testing.T) *lab {
	t.Helper()
	dir := t.TempDir()
	if err := bus.EnsureKeys(dir, house.Identities{}); err != nil {
		t.Fatal(err)
	}
	return &lab{t, dir, filepath.Join(dir, "url")}
}

func (l *lab) start() (stop func()) {
	l.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- bus.NewServer(bus.ServerConfig{Keys: l.dir, AddressFile: l.address, Log: quiet}).Run(ctx, func() { close(ready) })
	}()
	select {
	case <-ready:
	case err := <-ended:
		l.t.Fatal(err)
	}
	return func() {
		cancel()
		if err := <-ended; err != nil {
			l.t.Error(err)
		}
	}
}

func (l *lab) client(s house.Service) *bus.Client {
	l.t.Helper()
	c, err := bus.Connect(bus.ClientConfig{Service: s, AddressFile: l.address, KeyFile: bus.KeyFile(l.dir, s), Log: quiet})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(c.Close)
	return c
}

func (l *lab) until(what string, ok func() bool) {
	l.t.Helper()
	limit, tick := time.After(time.Minute), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-limit:
			l.t.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}

func heard(looks chan struct{}) func() bool {
	return func() bool {
		select {
		case <-looks:
			return true
		default:
			return false
		}
	}
}

func listen(c *bus.Client, name string) chan struct{} {
	looks := make(chan struct{}, 100)
	c.Listen(name, func(feed.Revision) { looks <- struct{}{} })
	return looks
}

func TestAnnouncementsArriveAndABusThatComesBackIsALook(t *testing.T) {
	l := newLab(t)
	owner, reader := l.client(house.Pleg), l.client(house.Status) // before there is a bus
	looks := listen(reader, house.PlegPods.Name)
	if owner.Connected() {
		t.Error("connected to nothing")
	}
	owner.Announce(t.Context(), house.PlegPods.Name, "a", feed.Revision{}) // without a bus it is dropped
	stop := l.start()
	l.until("connected", func() bool { return owner.Connected() && reader.Connected() })
	l.until("a look at the connection", heard(looks))
	l.until("an announcement", func() bool {
		owner.Announce(t.Context(), house.PlegPods.Name, "a.b *>", feed.Revision{Epoch: "e", N: 1})
		return heard(looks)()
	})
	before, err := os.ReadFile(l.address)
	if err != nil {
		t.Fatal(err)
	}
	l.until("silence", func() bool { return !heard(looks)() })
	stop()
	l.until("disconnected", func() bool { return !reader.Connected() })
	l.until("a look at the disconnection", heard(looks))
	stop = l.start()
	defer stop()
	l.until("connected again", reader.Connected)
	l.until("a look at the reconnection", heard(looks))
	if after, err := os.ReadFile(l.address); err != nil || string(after) != string(before) {
		t.Errorf("address %q, was %q (%v)", after, before, err)
	}
}

// TestALongKeyIsAnnounced: a key may be as long as a selector in a pod, and costs the owner
// neither the announcement nor the connection.
func TestALongKeyIsAnnounced(t *testing.T) {
	l := newLab(t)
	defer l.start()()
	owner, reader := l.client(house.Config), l.client(house.Volume)
	l.until("connected", func() bool { return owner.Connected() && reader.Connected() })
	looks := make(chan feed.Revision, 100)
	reader.Listen(house.ConfigObjects.Name, func(r feed.Revision) { looks <- r })
	announce := func(letters int) feed.Revision {
		want := feed.Revision{Epoch: "e", N: uint64(letters)} //nolint:gosec // not negative
		owner.Announce(t.Context(), house.ConfigObjects.Name, strings.Repeat("ä", letters), want)
		return want
	}
	l.until("the subscription", func() bool {
		announce(1)
		return len(looks) > 0 && (<-looks).Epoch == "e"
	})
	for _, letters := range []int{5000, 2 << 20} {
		want := announce(letters)
		l.until("announced", func() bool { return len(looks) > 0 && <-looks == want })
	}
}

// TestDroppedAnnouncementsAreALook: a reader that is so slow that its client drops what
// comes looks at once, and so does every other of its process.
func TestDroppedAnnouncementsAreALook(t *testing.T) {
	l := newLab(t)
	owner, reader := l.client(house.Pleg), l.client(house.Status)
	release, slowLooks := make(chan struct{}), make(chan struct{}, 100)
	reader.Listen(house.PlegPods.Name, func(r feed.Revision) {
		if r == (feed.Revision{}) {
			slowLooks <- struct{}{}
			return
		}
		<-release
	})
	defer close(release)
	others := listen(reader, house.PodWorkerPods.Name)
	defer l.start()() // only now: who listens before there is a connection looks at that, too
	l.until("connected", func() bool { return owner.Connected() && reader.Connected() })
	for _, looks := range []chan struct{}{slowLooks, others} {
		l.until("a look at the connection", heard(looks))
		l.until("a look once the server has the subscription", heard(looks))
	}
	for n := range uint64(nats.DefaultSubPendingMsgsLimit + 10_000) {
		owner.Announce(t.Context(), house.PlegPods.Name, "a", feed.Revision{Epoch: "e", N: n + 1})
	}
	l.until("a look of the slow one", heard(slowLooks))
	l.until("a look of the other", heard(others))
}

// between has clients reach the bus at another address, where what they send and
// are sent is passed on by copyUp, which is told how many were before, and copyDown.
func (l *lab) between(copyUp func(earlier int, far io.Writer, near io.Reader), copyDown func(near io.Writer, far io.Reader)) (url string, clients <-chan net.Conn) {
	l.t.Helper()
	address, err := os.ReadFile(l.address)
	if err != nil {
		l.t.Fatal(err)
	}
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = proxy.Close() })
	there := make(chan net.Conn, 10)
	go func() {
		for i := 0; ; {
			near, err := proxy.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", strings.TrimPrefix(strings.TrimSpace(string(address)), "nats://"))
			if err != nil { // the bus has been stopped: the client is to notice
				_ = near.Close()
				continue
			}
			l.t.Cleanup(func() { _ = errors.Join(near.Close(), far.Close()) })
			go copyUp(i, far, near)
			i++
			go copyDown(near, far)
			there <- near
		}
	}()
	return "nats://" + proxy.Addr().String(), there
}

func pass(to io.Writer, from io.Reader) { _, _ = io.Copy(to, from) }

// TestASilentBusIsLeft: a bus that is there and says nothing any more, as one that
// is stopped, is no bus: who listens looks on its own.
func TestASilentBusIsLeft(t *testing.T) {
	l := newLab(t)
	defer l.start()()
	silent := make(chan struct{})
	url, _ := l.between(
		func(_ int, far io.Writer, near io.Reader) { pass(far, near) },
		func(near io.Writer, far io.Reader) { pass(near, &deaf{far, silent}) })
	c, err := bus.Connect(bus.ClientConfig{
		Service: house.Status, URL: url, KeyFile: bus.KeyFile(l.dir, house.Status), Log: quiet, Ping: 200 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	looks := listen(c, house.PlegPods.Name)
	l.until("connected", c.Connected)
	l.until("silence", func() bool { return !heard(looks)() })
	close(silent)
	l.until("disconnected", func() bool { return !c.Connected() })
	l.until("a look at the disconnection", heard(looks))
}

// deaf reads until it is to be silent, and then nothing for ever.
type deaf struct {
	from   io.Reader
	silent chan struct{}
}

func (d *deaf) Read(p []byte) (int, error) {
	n, err := d.from.Read(p)
	select {
	case <-d.silent:
		select {}
	default:
	}
	return n, err
}

// TestAnothersPort: who takes the port of a bus that is away does not keep its clients
// from the bus when that is back elsewhere.
func TestAnothersPort(t *testing.T) {
	l := newLab(t)
	stop := l.start()
	reader := l.client(house.Status)
	l.until("connected", reader.Connected)
	address, err := os.ReadFile(l.address)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(strings.TrimSpace(string(address)))
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	seed, err := os.ReadFile(bus.KeyFile(l.dir, house.Status))
	if err != nil {
		t.Fatal(err)
	}
	stop()
	// It takes any key; this one tells the clients that it knows keys.
	pair, err := nkeys.FromSeed(seed)
	if err != nil {
		t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: port, NoSigs: true, Nkeys: []*server.NkeyUser{{Nkey: public}}})
	if err != nil {
		t.Fatal(err)
	}
	stranger.Start()
	defer func() { stranger.Shutdown(); stranger.WaitForShutdown() }()
	l.until("connected to the stranger", func() bool { return stranger.NumClients() > 0 && reader.Connected() })
	defer l.start()()

	looks := listen(reader, house.PlegPods.Name)
	owner := l.client(house.Pleg)
	l.until("owner connected", owner.Connected)
	l.until("an announcement", func() bool {
		reader.Hello(&nodev1.HelloResponse{})
		owner.Announce(t.Context(), house.PlegPods.Name, "a", feed.Revision{Epoch: "e", N: 1})
		return stranger.NumClients() == 0 && heard(looks)()
	})
}

// TestNothingIsMissedBeforeTheSubscriptionIsThere: what is announced after the look
// at a reconnection is heard, however late the server has the subscription.
func TestNothingIsMissedBeforeTheSubscriptionIsThere(t *testing.T) {
	l := newLab(t)
	defer l.start()()
	announced := make(chan struct{})
	url, clients := l.between(func(earlier int, far io.Writer, near io.Reader) {
		if earlier > 0 {
			hold(far, near, announced)
		} else {
			pass(far, near)
		}
	}, pass)
	owner, witness := l.client(house.Pleg), l.client(house.Operator)
	var looked atomic.Int32 // after so many connections
	reader, err := bus.Connect(bus.ClientConfig{
		Service: house.Status, URL: url, KeyFile: bus.KeyFile(l.dir, house.Status), Log: quiet, Ping: time.Hour,
		Connected: func(*bus.Client) { looked.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reader.Close)
	l.until("connected", func() bool { return owner.Connected() && witness.Connected() && reader.Connected() })
	// Revision 1 is announced until all have their subscriptions, 2 once after the look.
	follow := func(c *bus.Client) (at func(uint64) func() bool) {
		var n atomic.Uint64
		c.Listen(house.PlegPods.Name, func(r feed.Revision) {
			if r.N > 0 {
				n.Store(r.N)
			}
		})
		return func(want uint64) func() bool { return func() bool { return n.Load() == want } }
	}
	read, passed := follow(reader), follow(witness)
	l.until("subscribed", func() bool {
		owner.Announce(t.Context(), house.PlegPods.Name, "a", feed.Revision{Epoch: "e", N: 1})
		return read(1)() && passed(1)() && looked.Load() == 1
	})
	if err := (<-clients).Close(); err != nil {
		t.Fatal(err)
	}
	l.until("a look at the reconnection", func() bool { return looked.Load() == 2 })
	owner.Announce(t.Context(), house.PlegPods.Name, "a", feed.Revision{Epoch: "e", N: 2})
	l.until("the bus has the announcement", passed(2))
	close(announced)
	l.until("the announcement is read", read(2))
}

// hold passes on what a client sends, but from its first subscription on only some
// time later, or when release is closed.
func hold(to io.Writer, from io.Reader, release <-chan struct{}) {
	data := make([]byte, 4096)
	for held := false; ; {
		n, err := from.Read(data)
		if err != nil {
			return
		}
		if !held && bytes.Contains(data[:n], []byte("SUB ")) {
			held = true
			select {
			case <-release:
			case <-time.After(300 * time.Millisecond):
			}
		}
		if _, err := to.Write(data[:n]); err != nil {
			return
		}
	}
}

// TestSubjectsAreLimited: a service can neither announce for another nor listen
// to what it does not read.
func TestSubjectsAreLimited(t *testing.T) {
	l := newLab(t)
	defer l.start()()
	prober, pleg, status, operator := l.client(house.Prober), l.client(house.Pleg), l.client(house.Status), l.client(house.Operator)
	l.until("connected", func() bool {
		return prober.Connected() && pleg.Connected() && status.Connected() && operator.Connected()
	})
	var subjects []string
	followed := make(chan string, 100)
	if err := operator.Follow(func(subject string, data []byte) {
		a := &feedv1.Announcement{}
		if err := proto.Unmarshal(data, a); err != nil {
			t.Error(err)
		}
		followed <- subject
	}); err != nil {
		t.Fatal(err)
	}
	secrets := listen(prober, house.ConfigSecrets.Name)
	for len(secrets) > 0 {
		<-secrets
	}
	// The forger speaks first, the owner after it: what arrives is the owner's.
	l.until("the owner's announcement", func() bool {
		prober.Announce(t.Context(), house.PlegPods.Name, "forged", feed.Revision{})
		operator.Announce(t.Context(), house.PlegPods.Name, "forged", feed.Revision{})
		pleg.Announce(t.Context(), house.PlegPods.Name, "true", feed.Revision{})
		select {
		case s := <-followed:
			subjects = append(subjects, s)
			return true
		default:
			return false
		}
	})
	for _, s := range subjects {
		if strings.Contains(s, "forged") {
			t.Errorf("a forged announcement arrived: %s", s)
		}
	}
	if got := bus.Subscribes(house.Prober); strings.Contains(strings.Join(got, " "), house.ConfigSecrets.Name) {
		t.Errorf("prober may subscribe to %v", got)
	}
}

func TestStrangersGetNoConnection(t *testing.T) {
	l := newLab(t)
	defer l.start()()
	other := newLab(t) // keys of another node
	stranger, err := bus.Connect(bus.ClientConfig{Service: house.Pleg, AddressFile: l.address, KeyFile: bus.KeyFile(other.dir, house.Pleg), Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	friend := l.client(house.Pleg)
	l.until("the friend is connected", friend.Connected)
	if stranger.Connected() {
		t.Error("a key of another node was let in")
	}
}

func TestGarbageOnTheBus(t *testing.T) {
	l := newLab(t)
	defer l.start()()
	data, err := os.ReadFile(l.address)
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(strings.TrimSpace(string(data)), "nats://")
	for _, junk := range []string{"GET / HTTP/1.0\r\n\r\n", "CONNECT {\r\n", "PUB a 99999999999\r\n", strings.Repeat("\xff\x00", 5000), "SUB > 1\r\nPING\r\n"} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte(junk)) // it may be closed at once
		_ = conn.Close()
	}
	c := l.client(house.Pleg)
	l.until("a client after garbage", c.Connected)
}

func TestKeysAreKeptAndRepaired(t *testing.T) {
	dir := t.TempDir()
	read := func() string {
		t.Helper()
		if err := bus.EnsureKeys(dir, house.Identities{}); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(bus.KeyFile(dir, house.Pleg))
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(bus.KeyFile(dir, house.Pleg))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		return string(data)
	}
	first := read()
	if again := read(); again != first {
		t.Error("a second start made new keys")
	}
	if err := os.WriteFile(bus.KeyFile(dir, house.Pleg), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	if repaired := read(); repaired == first || repaired == "damaged" {
		t.Error("a damaged key was kept")
	}
}

// TestStrangersWriteFewLines: a local user who connects to the server, and fails, again
// and again, does not fill the log.
func TestStrangersWriteFewLines(t *testing.T) {
	l := newLab(t)
	var written bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	ready, ended := make(chan struct{}), make(chan error, 1)
	began := time.Now()
	go func() {
		log := slog.New(slog.NewTextHandler(&written, nil))
		ended <- bus.NewServer(bus.ServerConfig{Keys: l.dir, AddressFile: l.address, Log: log}).Run(ctx, func() { close(ready) })
	}()
	<-ready
	url, err := os.ReadFile(l.address)
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimPrefix(strings.TrimSpace(string(url)), "nats://")
	for _, say := range []string{"garbage\r\n", "CONNECT {}\r\nPING\r\n", "CONNECT {\"nkey\":\"U" + strings.Repeat("A", 3000) + "\"}\r\n"} {
		for range 100 {
			conn, err := net.Dial("tcp", address)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = conn.Write([]byte(say)) // the server may close first
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	minutes := int(time.Since(began)/time.Minute) + 1
	lines := strings.Count(written.String(), "msg=nats")
	if lines == 0 || lines > 4*minutes || written.Len() > lines*1200+2000 {
		t.Errorf("%d lines, %d bytes in %d minutes:\n%s", lines, written.Len(), minutes, written.String())
	}
}

// TestAnOwnerSaysWhetherItAnnounces: a service that has no key, or a key the server
// does not know, is not on the bus, however many of its readers are; they poll then.
func TestAnOwnerSaysWhetherItAnnounces(t *testing.T) {
	l, stranger := newLab(t), newLab(t)
	defer l.start()()
	stranger.address = l.address
	var none *bus.Client
	for _, test := range []struct {
		name   string
		client *bus.Client
		want   bool
	}{{"no key", none, false}, {"unknown key", stranger.client(house.Pleg), false}, {"its own key", l.client(house.Pleg), true}} {
		owner := feed.NewOwner[*feedv1.Revision](house.PlegPods.Name, "e", test.client)
		if test.want {
			l.until("connected", test.client.Connected)
		}
		if got := owner.Changes(&feedv1.ChangesRequest{}).GetAnnounced(); got != test.want {
			t.Errorf("%s: announced %v, want %v", test.name, got, test.want)
		}
	}
}

func TestTheBusSwitchedOff(t *testing.T) {
	var off *bus.Client
	if off.Connected() {
		t.Error("connected")
	}
	off.Announce(t.Context(), house.PlegPods.Name, "a", feed.Revision{})
	off.Listen(house.PlegPods.Name, func(feed.Revision) { t.Error("heard something") })()
	off.Close()
}
