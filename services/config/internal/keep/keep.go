// SPDX-License-Identifier: Apache-2.0

// Package keep is what config remembers over a restart: the last accepted
// pods, the objects they need, the last good configuration and the tokens.
//
// All of it can be asked for again; it is kept so that the node starts without
// the API server. So records are written in the background while they are
// published, the newest value of each key only, and a full disk is a log line.
// The file holds Secrets: it is the service's own, mode 0600, every record is
// encrypted, and the file is rewritten at each start and an hour after a record
// was deleted, so that it holds nothing else (docs/decisions/0014). Nothing is written
// before the key is on the disk.
package keep

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/signal"
	"github.com/sextant-node/sextant/pkg/store"
	configv1 "github.com/sextant-node/sextant/proto/sextant/config/v1"
	"github.com/sextant-node/sextant/services/config/internal/refs"
	"github.com/sextant-node/sextant/services/config/internal/token"
)

// Schema is the version of the file.
const Schema = 1

// File is the name within the state folder.
const File = "config.db"

const (
	// atOnce is how many records are encrypted again in parallel; their writes share a flush.
	atOnce = 32
	// longKey bounds the key of a record, in bytes; the store takes no more than 32 KiB.
	longKey = 1024
	// compactAfter is how long what was deleted may stay in the file.
	compactAfter = time.Hour
)

// Keeper writes in the background. Make it with Open.
type Keeper struct {
	Pods    Table[*configv1.DesiredPod]
	Objects Table[*configv1.Object]
	Tokens  Table[token.Token]
	Kubelet Table[*configv1.KubeletConfig]

	*store.Behind
	store *store.Store
	log   *slog.Logger
	mode  Mode
	// seals is used while nothing is written, or by what writes.
	seals sealer
	// deleted: there is something in the file that was deleted.
	deleted signal.Signal
}

// Table is one kind of record.
type Table[T any] struct {
	keeper *Keeper
	name   string
	table  *store.Table[T]
	// refused are records that are not kept; nil for none.
	refused func(T) bool
}

// Open opens the file. damage says that a former one was set aside.
func Open(cfg store.Config, keys Keys) (k *Keeper, damage *store.Damage, err error) {
	cfg.Schema = Schema
	s, damage, err := store.Open(cfg)
	if err != nil {
		return nil, damage, err
	}
	seals, err := keys.sealer()
	if err != nil {
		cfg.Log.Error("key of what is kept", "error", err.Error())
	}
	k = &Keeper{store: s, log: cfg.Log, mode: keys.Mode, seals: seals, deleted: signal.New()}
	k.Behind = store.NewBehind(store.BehindConfig{Before: k.saveKey, Log: cfg.Log})
	k.Pods = open(k, "pods", seals, store.Proto[*configv1.DesiredPod]())
	k.Objects = open(k, "objects", seals, store.Proto[*configv1.Object]())
	k.Tokens = open(k, "tokens", seals, store.JSON[token.Token]())
	k.Kubelet = open(k, "kubelet", seals, store.Proto[*configv1.KubeletConfig]())
	if keys.Mode == Off {
		k.Objects.refused = func(o *configv1.Object) bool { return o.GetKind() == refs.Secret }
		k.Tokens.refused = func(token.Token) bool { return true }
	}
	if err := k.Alone(k.saveKey); err != nil { // tried again before each write
		k.log.Error("nothing is kept yet", "error", err.Error())
	}
	return k, damage, nil
}

func open[T any](k *Keeper, name string, s sealer, inner store.Codec[T]) Table[T] {
	return Table[T]{keeper: k, name: name, table: store.NewTable(k.store, name, codec(s, name, inner))}
}

// saveKey writes the key, once, and has every record sealed with it. The error is that
// the key is not on the disk, so that no record may be sealed with it. Nothing is
// written meanwhile.
func (k *Keeper) saveKey() error {
	if k.seals.save == nil {
		return nil
	}
	if err := k.seals.save(); err != nil {
		return err
	}
	k.seals.save = nil
	if err := k.reseal(); err != nil { // the next life tries again
		k.log.Error("what is kept is not sealed anew", "error", err.Error())
	}
	return nil
}

// found are the records of a table that are not as they should be.
type found struct {
	table *store.Table[[]byte]
	// other are sealed with another key or none, as they should be sealed; lost are the
	// keys of those that cannot be read, or are not to be kept.
	other map[string][]byte
	lost  []string
}

// reseal seals every record with the present key, and removes those that cannot be read
// or are not to be kept, what was deleted before, and the keys that sealed records before.
func (k *Keeper) reseal() error {
	var all []found
	lost, whole := 0, 0
	for _, name := range []string{k.Pods.name, k.Objects.name, k.Tokens.name, k.Kubelet.name} {
		table := store.NewTable(k.store, name, raw())
		records, err := table.All()
		if err != nil {
			return err
		}
		f := found{table: table, other: map[string][]byte{}}
		for key, data := range records {
			switch plain, current, err := k.seals.open(name, data); {
			case err != nil:
				f.lost = append(f.lost, key)
			case !current:
				f.other[key] = k.seals.seal(name, plain)
			}
		}
		lost, whole = lost+len(f.lost), whole+len(records)-len(f.lost)
		all = append(all, f)
	}
	if lost > 0 {
		cause := fmt.Errorf("%d records are sealed with a key that is gone", lost)
		if k.mode == Boot { // as it should be after each boot
			k.log.Info("records dropped", "cause", cause.Error())
		} else if err := k.store.CopyAside(cause, whole); err != nil {
			return err
		}
	}
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, f := range all {
		for _, key := range f.lost {
			group.Go(func() error { return f.table.Delete(key) })
		}
		for key, data := range f.other {
			group.Go(func() error { return f.table.Put(key, data) })
		}
	}
	if err := errors.Join(group.Wait(), k.Objects.prune(), k.Tokens.prune()); err != nil {
		return err
	}
	err := k.store.Compact()
	if err != nil || k.store.State().Trouble != nil {
		return err // the former keys are needed still
	}
	for _, key := range k.seals.former {
		err = errors.Join(err, os.Remove(key))
	}
	return err
}

// prune removes the records that are not to be kept.
func (t Table[T]) prune() error {
	if t.refused == nil {
		return nil
	}
	all, err := t.table.All()
	for key, value := range all {
		if t.refused(value) {
			err = errors.Join(err, t.table.Delete(key))
		}
	}
	return err
}

// short is the key of a record in the file. One that is too long, for some hold what a
// pod's author wrote, has its sum there: no other record has it.
func short(key string) string {
	if len(key) <= longKey {
		return key
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(key)))
}

// All reads every record, by what short makes of its key.
func (t Table[T]) All() (map[string]T, error) { return t.table.All() }

// Now writes a record before it returns, if it is one to be kept. After an error it is
// written as soon as that can be done.
func (t Table[T]) Now(key string, value T) error {
	if t.refused != nil && t.refused(value) {
		return nil
	}
	key = short(key)
	return t.keeper.Now(context.Background(), t.id(key), func(context.Context) error { return t.table.Put(key, value) })
}

// Put writes a record soon, if it is one to be kept.
func (t Table[T]) Put(key string, value T) {
	if t.refused != nil && t.refused(value) {
		return
	}
	key = short(key)
	t.behind(key, func() error { return t.table.Put(key, value) })
}

// Delete removes a record soon, and what it leaves behind in the file within
// compactAfter.
func (t Table[T]) Delete(key string) {
	key = short(key)
	t.behind(key, func() error { return t.table.Delete(key) })
	t.keeper.deleted.Send()
}

func (t Table[T]) id(key string) string { return t.name + "\x00" + key }

func (t Table[T]) behind(key string, write func() error) {
	t.keeper.Behind.Put(t.id(key), func(ctx context.Context) error {
		if err := fault.Hit(ctx, "config.keep"); err != nil {
			return err
		}
		return write()
	})
}

// Run writes until ctx ends, and once more then; what was deleted leaves the file.
func (k *Keeper) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { k.compactions(ctx) })
	return k.Behind.Run(ctx)
}

// compactions rewrites the file, without what was deleted before, an hour after something was.
func (k *Keeper) compactions(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.deleted:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(compactAfter):
		}
		err := k.Flush(ctx) // a deletion may wait
		if err == nil {
			err = k.Alone(k.store.Compact)
		}
		if err != nil {
			k.log.Warn("state file not written anew", "error", err.Error())
			k.deleted.Send()
		}
	}
}

// Close closes the file.
func (k *Keeper) Close() error { return k.store.Close() }
