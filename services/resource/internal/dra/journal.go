// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sextant-node/sextant/pkg/file"
	"github.com/sextant-node/sextant/pkg/store"
)

// journal keeps the claims on the disk: in the store, which counts, and in the kubelet's
// file. Safe for concurrent use.
type journal struct {
	path  string // of the kubelet's file
	table *store.Table[Claim]
	sums  *store.Table[sums]
	log   *slog.Logger

	writing sync.Mutex // one change at a time: the file has all claims
	mu      sync.Mutex
	claims  map[string]*Claim // by namespace/name; never changed in place
	sum     uint32            // of the file as it was written last
}

// sums tell the file as this service left it, or was about to, from one that a kubelet
// has written since.
type sums struct {
	Before uint32 `json:"before"`
	After  uint32 `json:"after"`
}

// Name of the kubelet's file below its root directory.
const Name = "dra_manager_state"

const sumsKey = Name

// openJournal reads what an earlier life, or a kubelet, left.
func openJournal(s *store.Store, path, boot string, now time.Time, log *slog.Logger) (*journal, error) {
	j := &journal{path: path, log: log, claims: map[string]*Claim{}}
	j.table = store.NewTable(s, "dra-claims", store.JSON[Claim]())
	j.sums = store.NewTable(s, "dra-file", store.JSON[sums]())
	kept, err := j.table.All()
	if err != nil {
		return nil, err
	}
	for key, c := range kept {
		j.claims[key] = anotherBoot(&c, boot)
	}
	if err := j.adopt(now); err != nil {
		return nil, err
	}
	return j, j.write()
}

// anotherBoot is a claim after the node has booted: what was prepared before is not known
// to be there still.
func anotherBoot(c *Claim, boot string) *Claim {
	for name, d := range c.Drivers {
		if d.Stage == prepared && d.Boot != boot {
			c.Drivers[name] = Driver{Stage: unsure, Devices: d.Devices}
		}
	}
	return c
}

// adopt takes the claims from the kubelet's file if a kubelet has written it since.
func (j *journal) adopt(now time.Time) error {
	text, err := os.ReadFile(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("claims of a kubelet: %w", err)
	}
	theirs, sum, err := decode(text)
	if err != nil {
		aside, asideErr := file.Aside(j.path, now)
		j.log.Error("claims of a kubelet not read", "path", j.path, "aside", aside, "error", errors.Join(err, asideErr).Error())
		return nil
	}
	ours, ok, err := j.sums.Get(sumsKey)
	if err != nil {
		return err
	}
	if j.sum = sum; ok && (sum == ours.Before || sum == ours.After) {
		return nil
	}
	j.log.Info("claims taken from a kubelet", "path", j.path, "claims", len(theirs))
	for key := range j.claims {
		if theirs[key] == nil {
			if err := j.table.Delete(key); err != nil {
				return err
			}
		}
	}
	for key, c := range theirs {
		if err := j.table.Put(key, *c); err != nil {
			return err
		}
	}
	j.claims = theirs
	return nil
}

// get finds a claim by namespace/name, or returns nil.
func (j *journal) get(key string) *Claim {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.claims[key]
}

// all are the claims there are now.
func (j *journal) all() map[string]*Claim {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.claims)
}

// change puts in what decide makes of the claims there are, and removes those that no driver
// holds anything for and no pod uses. It is one step: no other change comes between. decide
// changes nothing in place. When change returns nil the claims are on the disk.
func (j *journal) change(decide func(known map[string]*Claim) []*Claim) error {
	j.writing.Lock()
	defer j.writing.Unlock()
	next := j.all()
	claims := decide(next)
	if len(claims) == 0 {
		return nil
	}
	for _, c := range claims {
		if next[c.key()] = c; len(c.Pods) == 0 {
			delete(next, c.key())
		}
	}
	text, sum, err := encode(next)
	if err != nil {
		return err
	}
	var writes errgroup.Group // together, for one flush
	writes.Go(func() error { return j.sums.Put(sumsKey, sums{Before: j.sum, After: sum}) })
	for _, c := range claims {
		writes.Go(func() error {
			if len(c.Pods) == 0 {
				return j.table.Delete(c.key())
			}
			return j.table.Put(c.key(), *c)
		})
	}
	if err := writes.Wait(); err != nil {
		return err
	}
	j.mu.Lock()
	j.claims = next
	j.mu.Unlock()
	j.replace(text, sum)
	return nil
}

// amend changes what is known of claims.
func (j *journal) amend(claims []*Claim, how func(c *Claim)) error {
	return j.change(func(known map[string]*Claim) []*Claim {
		var next []*Claim
		for _, c := range claims {
			c = known[c.key()].clone()
			how(c)
			next = append(next, c)
		}
		return next
	})
}

// write brings the kubelet's file in line with the claims, as a kill may have come between.
func (j *journal) write() error {
	text, sum, err := encode(j.all())
	if err != nil || sum == j.sum || j.sum == 0 && len(j.claims) == 0 {
		return err
	}
	if err := j.sums.Put(sumsKey, sums{Before: j.sum, After: sum}); err != nil {
		return err
	}
	j.replace(text, sum)
	return nil
}

// replace writes the kubelet's file. It is for a kubelet that comes later: that it cannot
// be written holds nothing up, and the next change writes all of it.
func (j *journal) replace(text []byte, sum uint32) {
	if err := file.Replace(j.path, text, 0o600); err != nil {
		j.log.Error("claims not written for a kubelet", "path", j.path, "error", err.Error())
		return
	}
	j.sum = sum
}

// users are the pods that use claims of a driver, sorted.
func (j *journal) users(driver string) []string {
	var all []string
	for _, c := range j.all() {
		if _, ok := c.Drivers[driver]; ok {
			all = append(all, c.Pods...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// pods are the UIDs of all pods that use claims, sorted.
func (j *journal) pods() []string {
	users := map[string]bool{}
	for _, c := range j.all() {
		for _, uid := range c.Pods {
			users[uid] = true
		}
	}
	return slices.Sorted(maps.Keys(users))
}
