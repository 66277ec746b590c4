// SPDX-License-Identifier: Apache-2.0

package feed_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sextant-node/sextant/pkg/bus"
	"github.com/sextant-node/sextant/pkg/feed"
	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	feedv1 "github.com/sextant-node/sextant/proto/sextant/feed/v1"
	"github.com/sextant-node/sextant/test/feedtest"
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
	local feedtest.Local
}

func (p *inProcess) start(name string, owner feed.Source) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.local = feedtest.Local{name: owner}
}

func (p *inProcess) Pull(ctx context.Context, req *feedv1.ChangesRequest) (*feedv1.ChangesResponse, error) {
	p.mu.Lock()
	local := p.local
	p.mu.Unlock()
	return local.Pull(ctx, req)
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
	go func() {
		ended <- server.Run(ctx, sync.OnceFunc(func() { close(ready) }))
		close(ended)
	}()
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
		local := &inProcess{}
		t.Run(f.Name+"/in process", func(t *testing.T) {
			feedtest.Conformance(t, feedtest.Subject{
				Feed: f.Name, Message: f.Message, Puller: local,
				Start: func(_ *testing.T, epoch string) *feed.Owner[proto.Message] {
					o := feed.NewOwner[proto.Message](f.Name, epoch, nil)
					local.start(f.Name, o)
					return o
				},
			})
		})
		t.Run(f.Name+"/socket", func(t *testing.T) {
			feedtest.Conformance(t, feedtest.Subject{
				Feed: f.Name, Message: f.Message, Puller: remote.conn,
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
				Feed: f.Name, Message: f.Message, Puller: remote.conn, Listener: listen,
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
	s.server.Add(feed.NewOwner[proto.Message](house.ConfigSecrets.Name, "e", nil))
	if _, err := s.conn.Pull(t.Context(), &feedv1.ChangesRequest{Feed: "no.feed"}); !rpc.Is(err, rpc.NotFound) {
		t.Errorf("unknown feed: %v, want not found", err)
	}
	// Root is the operator and may not read secrets; here it also is every
	// service, so the rule is asked for directly.
	if house.MayRead(house.Operator, house.ConfigSecrets.Name) || house.MayRead(house.NodeAPI, house.ConfigSecrets.Name) {
		t.Error("secrets are readable by who must not read them")
	}
	if !house.MayRead(house.Volume, house.ConfigSecrets.Name) {
		t.Error("volume cannot read secrets")
	}
}

// TestAmendedItems: readers that have an item learn nothing of an amendment; those that
// start, and those that take the item's next change, have the newest value.
func TestAmendedItems(t *testing.T) {
	owner := feed.NewOwner[*configv1.Object](house.ConfigObjects.Name, "e", nil)
	set := func(name, text string) {
		t.Helper()
		if _, err := owner.Set(t.Context(), name, &configv1.Object{Name: name, Error: text}); err != nil {
			t.Fatal(err)
		}
	}
	amend := func(name, text string) {
		t.Helper()
		if err := owner.Amend(name, &configv1.Object{Name: name, Error: text}); err != nil {
			t.Fatal(err)
		}
	}
	changed := []string{}
	reader := func() *feed.Replica[*configv1.Object] {
		m := feed.NewReplica(feed.ReplicaConfig{Feed: house.ConfigObjects.Name, Puller: feedtest.Local{house.ConfigObjects.Name: owner}}, feed.Decoder(feed.Whole[*configv1.Object]))
		m.Watch(func(keys []string) { changed = append(changed, keys...) })
		return m
	}
	says := func(m *feed.Replica[*configv1.Object], want string) {
		t.Helper()
		if err := m.Pull(t.Context()); err != nil {
			t.Fatal(err)
		}
		if o, _ := m.Get("a"); o.GetError() != want {
			t.Errorf("the reader has %q, want %q", o.GetError(), want)
		}
	}
	set("a", "1")
	running := reader()
	says(running, "1")
	before, _, _ := owner.State()
	changed = nil
	amend("a", "2")
	amend("missing", "2")
	says(running, "1")
	if after, _, items := owner.State(); after != before || items != 1 || len(changed) > 0 {
		t.Errorf("revision %v after %v, %d items, changes %v", after, before, items, changed)
	}
	says(reader(), "2")
	set("b", "1")
	says(running, "1")
	set("a", "3")
	amend("a", "4")
	says(running, "4")
}

func TestEventsAreABoundedLog(t *testing.T) {
	e := feed.NewEvents("config.events", "e", nil)
	for i := range 1500 {
		event := &eventv1.Event{Message: "Readiness probe failed: caf" + []string{"\xc3\xa9", "\xe9"}[i%2]}
		if err := e.Emit(t.Context(), event); err != nil {
			t.Fatal(err)
		}
	}
	keys := e.Keys()
	if len(keys) != 1000 || keys[0] != fmt.Sprintf("%016d", 501) {
		t.Errorf("%d events from %s, want the last 1000", len(keys), keys[0])
	}
}

// TestEventsOutliveTheirProcess: what was emitted lately is in the feed of the next process, under
// the name that it had.
func TestEventsOutliveTheirProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "events")
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	process := func(epoch string) *feed.Events {
		e := feed.NewEvents("f", epoch, nil)
		if err := e.Keep(t.Context(), path, now); err != nil {
			t.Fatal(err)
		}
		return e
	}
	has := func(e *feed.Events, want ...string) {
		t.Helper()
		var got []string
		for _, item := range e.Keys() {
			event, _ := e.Get(item)
			epoch, key := feed.EventID("now", item)
			got = append(got, fmt.Sprintf("%s/%s %s%s", epoch, key, event.GetKey(), event.GetMessage()))
		}
		if !slices.Equal(got, want) {
			t.Errorf("the feed has %q, want %q", got, want)
		}
	}
	emit := func(e *feed.Events, key, message string) {
		t.Helper()
		if err := e.Emit(t.Context(), &eventv1.Event{Key: key, Message: message, Time: timestamppb.New(now)}); err != nil {
			t.Fatal(err)
		}
	}
	first := process("one")
	has(first)
	emit(first, "", "caf\xe9")
	emit(first, "own", "said again by its service")
	now = now.Add(9 * time.Second)
	emit(first, "", "b")
	second := process("two")
	has(second, "one/0000000000000001 caf\uFFFD", "one/0000000000000003 b")
	emit(second, "", "c")
	now = now.Add(2 * time.Second)
	has(process("three"), "one/0000000000000003 b", "two/0000000000000001 c")

	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data[:len(data)-1], 0o600); err != nil { // killed as it wrote
		t.Fatal(err)
	}
	has(process("four"), "one/0000000000000003 b")
	if err := os.WriteFile(path, []byte("\xff\xff\xff\xff\xff garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	has(process("five"))
}

// TestFileOfEventsIsBounded: and so is a feed that has events of an earlier process.
func TestFileOfEventsIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "events")
	now := time.Now()
	for _, epoch := range []string{"one", "two"} {
		e := feed.NewEvents("f", epoch, nil)
		if err := e.Keep(t.Context(), path, now); err != nil {
			t.Fatal(err)
		}
		for range 1200 {
			if err := e.Emit(t.Context(), &eventv1.Event{Message: strings.Repeat("x", 1000), Time: timestamppb.New(now)}); err != nil {
				t.Fatal(err)
			}
		}
		keys := e.Keys()
		if len(keys) != 1000 || keys[0] != fmt.Sprintf("%016d", 201) {
			t.Errorf("%d events from %s, want the last 1000", len(keys), keys[0])
		}
		if file, err := os.Stat(path); err != nil || file.Size() > 256<<10 {
			t.Errorf("the file: %v, %v", file.Size(), err)
		}
	}
}

// TestItemChangesWhateverItsText: text that is not UTF-8 neither freezes an item
// nor keeps it from its readers.
func TestItemChangesWhateverItsText(t *testing.T) {
	owner := feed.NewOwner[*eventv1.Event]("f", "e", nil)
	m := feed.NewReplica(feed.ReplicaConfig{Feed: "f", Puller: feedtest.Local{"f": owner}}, feed.Decoder(feed.Whole[*eventv1.Event]))
	for text, want := range map[string]string{"whole": "whole", "caf\xe9": "caf\uFFFD", "\xe6\x97": "\uFFFD"} {
		if _, err := owner.Set(t.Context(), "pod", &eventv1.Event{Message: text}); err != nil {
			t.Fatal(err)
		}
		if err := m.Pull(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, _ := m.Get("pod"); got.GetMessage() != want {
			t.Errorf("%q arrived as %q, want %q", text, got.GetMessage(), want)
		}
	}
}

// TestItemsOfAFormerLife: what a new life of the owner has not listed stays while
// it is not complete, and is not taken for its word.
func TestItemsOfAFormerLife(t *testing.T) {
	ctx := t.Context()
	local := feedtest.Local{}
	m := feed.NewReplica(feed.ReplicaConfig{Feed: "f", Puller: local}, feed.Decoder(feed.Whole[*feedv1.Revision]))
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

func (u *unreliable) Pull(ctx context.Context, req *feedv1.ChangesRequest) (*feedv1.ChangesResponse, error) {
	if u.lose {
		return nil, rpc.Unavailable.Errorf("lost")
	}
	if u.stale && u.last != nil && proto.Equal(u.last.GetRevision(), req.GetSince()) {
		return proto.CloneOf(u.last), nil // the former answer once more
	}
	resp, err := u.Puller.Pull(ctx, req)
	u.last = resp
	return resp, err
}

// FuzzModel drives an owner and a replica by a script and compares them with a
// map: whatever is lost or doubled, the replica ends equal to the owner, and
// never lets an item go that no owner has deleted or completely left out.
func FuzzModel(f *testing.F) {
	f.Add("saSbPdaPrPcP")
	f.Add(strings.Repeat("sadaP", 30) + "rscPcP")
	f.Add("sasbcPrlPLPkPsacP")
	f.Fuzz(func(t *testing.T, script string) {
		ctx := t.Context()
		local := feedtest.Local{}
		epoch := 0
		var owner *feed.Owner[*feedv1.Revision]
		start := func() {
			epoch++
			owner = feed.NewOwner[*feedv1.Revision]("f", fmt.Sprint(epoch), nil)
			local["f"] = owner
		}
		start()
		link := &unreliable{Puller: local}
		replica := feed.NewReplica(feed.ReplicaConfig{Feed: "f", Puller: link}, feed.Decoder(feed.Whole[*feedv1.Revision]))
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
				before := replica.Items()
				err := replica.Pull(ctx)
				after := replica.Items()
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
			if err := replica.Pull(ctx); err != nil {
				t.Fatal(err)
			}
		}
		got := replica.Items()
		if len(got) != len(model) {
			t.Fatalf("%q: replica %v, model %v", script, got, model)
		}
		for key, n := range model {
			if got[key].GetN() != n {
				t.Fatalf("%q: %s is %d, want %d", script, key, got[key].GetN(), n)
			}
		}
	})
}
