package feed_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/sextant-node/sextant/pkg/bus"
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/feed/feedtest"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
)

var quiet = slog.New(slog.DiscardHandler)

// served is a feed server on a socket; its owners come and go.
type served struct {
	server *feed.Server
	conn   feed.Remote
	ids    house.Identities
}

func serve(t *testing.T) *served {
	t.Helper()
	ids := house.Identities{}
	for _, s := range house.Services() {
		ids[s] = uint32(os.Geteuid())
	}
	socket := filepath.Join(t.TempDir(), "s")
	server, err := rpc.NewServer(rpc.ServerConfig{Socket: socket, Identities: ids, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	s := &served{server: feed.NewServer(), ids: ids}
	s.server.Register(server)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	conn, err := rpc.Dial(rpc.ClientConfig{Socket: socket, Patient: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	s.conn = feed.Remote{Client: feedv1.NewFeedServiceClient(conn)}
	return s
}

// inProcess pulls from whichever owner is started.
type inProcess struct {
	mu    sync.Mutex
	local feed.Local
}

func (p *inProcess) start(name string, owner feed.Source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.local = feed.Local{name: owner}
}

func (p *inProcess) Pull(ctx context.Context, name string, since feed.Revision) (*feedv1.ChangesResponse, error) {
	p.mu.Lock()
	local := p.local
	p.mu.Unlock()
	return local.Pull(ctx, name, since)
}

// startBus starts a NATS server and a client for each of two services.
func startBus(t *testing.T, owner, reader house.Service) (announce, listen *bus.Client) {
	t.Helper()
	dir := t.TempDir()
	if err := bus.EnsureKeys(dir, house.Identities{}); err != nil {
		t.Fatal(err)
	}
	address := filepath.Join(dir, "url")
	server := bus.NewServer(bus.ServerConfig{Keys: dir, AddressFile: address, Log: quiet})
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- server.Run(ctx, sync.OnceFunc(func() { close(ready) })) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	client := func(s house.Service) *bus.Client {
		c, err := bus.Connect(bus.ClientConfig{Service: s, AddressFile: address, KeyFile: bus.KeyFile(dir, s), Log: quiet})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		connected := make(chan struct{})
		once := sync.OnceFunc(func() { close(connected) })
		stop := c.Listen("none", func(feed.Revision) { once() })
		defer stop()
		for !c.Connected() {
			select {
			case <-connected:
			case <-time.After(10 * time.Millisecond):
			}
		}
		return c
	}
	return client(owner), client(reader)
}

// TestEveryFeed runs the suite for each feed of the house on each transport.
func TestEveryFeed(t *testing.T) {
	remote := serve(t)
	for _, f := range house.Feeds() {
		message := func() proto.Message { return house.NewMessage(f.Name) }
		local := &inProcess{}
		t.Run(f.Name+"/in process", func(t *testing.T) {
			feedtest.Conformance(t, feedtest.Subject{
				Feed: f.Name, Message: message, Puller: local,
				Start: func(_ *testing.T, epoch string) *feed.Owner[proto.Message] {
					o := feed.NewOwner[proto.Message](f.Name, epoch, nil)
					local.start(f.Name, o)
					return o
				},
			})
		})
		t.Run(f.Name+"/socket", func(t *testing.T) {
			feedtest.Conformance(t, feedtest.Subject{
				Feed: f.Name, Message: message, Puller: remote.conn,
				Start: func(_ *testing.T, epoch string) *feed.Owner[proto.Message] {
					o := feed.NewOwner[proto.Message](f.Name, epoch, nil)
					remote.server.Add(o)
					return o
				},
			})
		})
		reader := house.Operator
		if len(f.Readers) > 0 {
			reader = f.Readers[0]
		}
		t.Run(f.Name+"/socket and bus", func(t *testing.T) {
			announce, listen := startBus(t, f.Owner, reader)
			feedtest.Conformance(t, feedtest.Subject{
				Feed: f.Name, Message: message, Puller: remote.conn, Listener: listen,
				Start: func(_ *testing.T, epoch string) *feed.Owner[proto.Message] {
					o := feed.NewOwner[proto.Message](f.Name, epoch, announce)
					remote.server.Add(o)
					return o
				},
			})
		})
	}
}

func TestStrangersAndUnknownFeeds(t *testing.T) {
	s := serve(t)
	s.server.Add(feed.NewOwner[proto.Message](house.ConfigSecrets, "e", nil))
	if _, err := s.conn.Pull(t.Context(), "no.feed", feed.Revision{}); !rpc.Is(err, rpc.NotFound) {
		t.Errorf("unknown feed: %v, want not found", err)
	}
	// Root is the operator and may not read secrets; here it also is every
	// service, so the rule is asked for directly.
	if house.MayRead(house.Operator, house.ConfigSecrets) || house.MayRead(house.NodeAPI, house.ConfigSecrets) {
		t.Error("secrets are readable by who must not read them")
	}
	if !house.MayRead(house.Volume, house.ConfigSecrets) {
		t.Error("volume cannot read secrets")
	}
}

func TestEventsAreABoundedLog(t *testing.T) {
	e := feed.NewEvents("config.events", "e", nil)
	for range 1500 {
		if err := e.Emit(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	keys := e.Keys()
	if len(keys) != 1000 || keys[0] != fmt.Sprintf("%016d", 501) {
		t.Errorf("%d events from %s, want the last 1000", len(keys), keys[0])
	}
}

// TestItemsOfAFormerLife: what a new life of the owner has not listed stays while
// it is not complete, and is not taken for its word.
func TestItemsOfAFormerLife(t *testing.T) {
	ctx := t.Context()
	local := feed.Local{}
	m := feed.NewMirror(feed.MirrorConfig{Feed: "f", Puller: local}, feed.Message[*feedv1.Revision])
	owner := func(epoch string, keys ...string) {
		o := feed.NewOwner[*feedv1.Revision]("f", epoch, nil)
		for _, key := range keys {
			if _, err := o.Set(ctx, key, &feedv1.Revision{}); err != nil {
				t.Fatal(err)
			}
		}
		local["f"] = o
		if err := m.Pull(ctx); err != nil {
			t.Fatal(err)
		}
	}
	owner("one", "a", "b")
	owner("two", "b")
	if _, kept := m.Get("a"); !kept || m.Current("a") || !m.Current("b") || m.Current("c") {
		t.Errorf("a kept %v, current %v; b current %v; c current %v", kept, m.Current("a"), m.Current("b"), m.Current("c"))
	}
}

// unreliable loses requests and doubles answers, as its script says.
type unreliable struct {
	feed.Puller
	lose, stale bool
	last        *feedv1.ChangesResponse
}

func (u *unreliable) Pull(ctx context.Context, name string, since feed.Revision) (*feedv1.ChangesResponse, error) {
	if u.lose {
		return nil, rpc.Unavailable.Errorf("lost")
	}
	if u.stale && u.last != nil && feed.RevisionFrom(u.last.GetRevision()) == since {
		return proto.CloneOf(u.last), nil // the former answer once more
	}
	resp, err := u.Puller.Pull(ctx, name, since)
	u.last = resp
	return resp, err
}

// FuzzModel drives an owner and a mirror by a script and compares them with a
// map: whatever is lost or doubled, the mirror ends equal to the owner, and
// never lets an item go that no owner has deleted or completely left out.
func FuzzModel(f *testing.F) {
	f.Add("saSbPdaPrPcP")
	f.Add(strings.Repeat("sadaP", 30) + "rscPcP")
	f.Add("sasbcPrlPLPkPsacP")
	f.Fuzz(func(t *testing.T, script string) {
		ctx := t.Context()
		local := feed.Local{}
		epoch := 0
		var owner *feed.Owner[*feedv1.Revision]
		start := func() {
			epoch++
			owner = feed.NewOwner[*feedv1.Revision]("f", fmt.Sprint(epoch), nil)
			local["f"] = owner
		}
		start()
		link := &unreliable{Puller: local}
		mirror := feed.NewMirror(feed.MirrorConfig{Feed: "f", Puller: link}, feed.Message[*feedv1.Revision])
		model, deleted := map[string]uint64{}, map[string]bool{}
		complete := false
		set := func(key string, n uint64) {
			model[key] = n
			delete(deleted, key)
			if _, err := owner.Set(ctx, key, &feedv1.Revision{N: n}); err != nil {
				t.Fatal(err)
			}
		}
		for i, op := range script {
			key := string('a' + (op*7+rune(i))%5)
			switch op {
			case 's', 'S':
				set(key, uint64(i+1))
			case 'd':
				if _, had := model[key]; had {
					deleted[key] = true
				}
				delete(model, key)
				owner.Delete(ctx, key)
			case 'c':
				complete = true
				owner.SetComplete(ctx, true)
			case 'k':
				complete = false
				owner.SetComplete(ctx, false)
			case 'r':
				start()
				complete = false
				clear(model)
			case 'l':
				link.lose = true
			case 'L':
				link.lose, link.stale = false, !link.stale
			case 'P':
				before := mirror.Items()
				err := mirror.Pull(ctx)
				after := mirror.Items()
				for key := range before {
					_, kept := after[key]
					_, wanted := model[key]
					if !kept && (err != nil || wanted || !complete && !deleted[key]) {
						t.Fatalf("at %d of %q: %s was let go", i, script, key)
					}
				}
			}
		}
		link.lose, link.stale = false, false
		owner.SetComplete(ctx, true)
		for range 3 { // a stale answer may cost a pull or two
			if err := mirror.Pull(ctx); err != nil {
				t.Fatal(err)
			}
		}
		got := mirror.Items()
		if len(got) != len(model) {
			t.Fatalf("%q: mirror %v, model %v", script, got, model)
		}
		for key, n := range model {
			if got[key].GetN() != n {
				t.Fatalf("%q: %s is %d, want %d", script, key, got[key].GetN(), n)
			}
		}
	})
}
