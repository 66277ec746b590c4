// Package keep is what config remembers over a restart: the last accepted
// pods, the objects they need, the last good configuration and the tokens.
//
// All of it can be asked for again; it is kept so that the node starts without
// the API server. So records are written in the background while they are
// published, the newest value of each key only, and a full disk is a log line.
// The file holds Secrets: it is the service's own, mode 0600.
package keep

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/store"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/config/internal/token"
)

// Schema is the version of the file.
const Schema = 1

// File is the name within the state folder.
const File = "config.db"

const (
	// atOnce records are written at the same time; they share a disk flush.
	atOnce = 32
	// again is how long after a failed write it is tried again.
	again = 5 * time.Second
)

// Keeper writes in the background. Make it with Open.
type Keeper struct {
	Pods    Table[*configv1.DesiredPod]
	Objects Table[*configv1.Object]
	Tokens  Table[token.Token]
	Kubelet Table[*configv1.KubeletConfig]

	store *store.Store
	log   *slog.Logger
	wake  chan struct{}

	mu      sync.Mutex
	pending map[string]func() error // by table and key
	writing int
}

// Table is one kind of record.
type Table[T any] struct {
	keeper *Keeper
	name   string
	table  *store.Table[T]
}

// Open opens the file. damage tells that a former one was set aside.
func Open(cfg store.Config) (k *Keeper, damage *store.Damage, err error) {
	cfg.Schema = Schema
	s, damage, err := store.Open(cfg)
	if err != nil {
		return nil, damage, err
	}
	k = &Keeper{store: s, log: cfg.Log, wake: make(chan struct{}, 1), pending: map[string]func() error{}}
	if k.Pods, err = open(k, "pods", store.Proto[*configv1.DesiredPod]()); err != nil {
		return nil, damage, err
	}
	if k.Objects, err = open(k, "objects", store.Proto[*configv1.Object]()); err != nil {
		return nil, damage, err
	}
	if k.Tokens, err = open(k, "tokens", store.JSON[token.Token]()); err != nil {
		return nil, damage, err
	}
	if k.Kubelet, err = open(k, "kubelet", store.Proto[*configv1.KubeletConfig]()); err != nil {
		return nil, damage, err
	}
	return k, damage, nil
}

func open[T any](k *Keeper, name string, codec store.Codec[T]) (Table[T], error) {
	t, err := store.NewTable(k.store, name, codec)
	return Table[T]{k, name, t}, err
}

// All reads every record.
func (t Table[T]) All() (map[string]T, error) { return t.table.All() }

// Now writes a record before it returns.
func (t Table[T]) Now(key string, value T) error { return t.table.Put(key, value) }

// Put writes a record soon.
func (t Table[T]) Put(key string, value T) {
	t.keeper.enqueue(t.name+"\x00"+key, func() error { return t.table.Put(key, value) })
}

// Delete removes a record soon.
func (t Table[T]) Delete(key string) {
	t.keeper.enqueue(t.name+"\x00"+key, func() error { return t.table.Delete(key) })
}

func (k *Keeper) enqueue(id string, write func() error) {
	k.mu.Lock()
	k.pending[id] = write
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Run writes until ctx ends, and once more then.
func (k *Keeper) Run(ctx context.Context) error {
	for {
		var retry <-chan time.Time
		if err := k.Flush(ctx); err != nil {
			k.log.Error("state not kept", "error", err.Error())
			retry = time.After(again)
		}
		select {
		case <-ctx.Done():
			if err := k.Flush(context.WithoutCancel(ctx)); err != nil {
				k.log.Error("state not kept", "error", err.Error())
			}
			return nil
		case <-k.wake:
		case <-retry:
		}
	}
}

// Flush writes what is pending. What could not be written stays pending,
// unless it was replaced meanwhile.
func (k *Keeper) Flush(ctx context.Context) error {
	k.mu.Lock()
	pending := k.pending
	k.pending = map[string]func() error{}
	k.writing += len(pending)
	k.mu.Unlock()
	var group errgroup.Group
	group.SetLimit(atOnce)
	for id, write := range pending {
		group.Go(func() error {
			err := fault.Hit(ctx, "config.keep")
			if err == nil {
				err = write()
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			k.writing--
			if err != nil {
				if _, newer := k.pending[id]; !newer {
					k.pending[id] = write
				}
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// Unwritten tells how many records are not on disk yet.
func (k *Keeper) Unwritten() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.pending) + k.writing
}

// Close closes the file.
func (k *Keeper) Close() error { return k.store.Close() }
