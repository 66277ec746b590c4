// SPDX-License-Identifier: Apache-2.0

package images

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/distribution/reference"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Record is what is known of one stored image.
type Record struct {
	ID string
	// Handler is the runtime handler that it was pulled for, where the runtime tells.
	Handler string
	// Names are its digests and tags.
	Names  []string
	Size   int64
	Pinned bool
	// FirstSeen and LastUsed are when this process saw it for the first time,
	// and in use for the last.
	FirstSeen, LastUsed time.Time
	InUse               bool
}

// Used says which images are in use: by id, digest or tag, or as a pod's
// specification names them.
type Used map[string]bool

// normal adds to names as written ("nginx") those the runtime lists
// ("docker.io/library/nginx:latest").
func (u Used) normal() Used {
	all := make(Used, len(u))
	for name, used := range u {
		if !used {
			continue
		}
		all[name] = true
		if named, err := reference.ParseNormalizedNamed(name); err == nil {
			all[reference.TagNameOnly(named).String()] = true
		}
	}
	return all
}

func (u Used) has(id string, names []string) bool {
	return u[id] || slices.ContainsFunc(names, func(n string) bool { return u[n] })
}

// observe brings records up to date with a listing. first is the time given to
// images not seen before: the zero time for those found at start, so that they
// need not wait for the minimal age.
func observe(records map[string]Record, listed []*runtimeapi.Image, used Used, first, now time.Time) map[string]Record {
	used = used.normal()
	next := make(map[string]Record, len(listed))
	for _, image := range listed {
		r, known := records[image.GetId()]
		if !known {
			r = Record{ID: image.GetId(), FirstSeen: first}
		}
		r.Names, r.Handler = names(image), image.GetSpec().GetRuntimeHandler()
		r.Size, r.Pinned = int64(image.GetSize()), image.GetPinned()
		if r.InUse = used.has(r.ID, r.Names); r.InUse {
			r.LastUsed = now
		}
		next[r.ID] = r
	}
	return next
}

// sandboxImage is the image that containerd's verbose status has in its
// configuration as sandboxImage; none if there is no such field.
func sandboxImage(info map[string]string) Used {
	var config struct {
		SandboxImage string `json:"sandboxImage"`
	}
	if json.Unmarshal([]byte(info["config"]), &config) != nil || config.SandboxImage == "" {
		return nil // another runtime's text, for people
	}
	return Used{config.SandboxImage: true}
}

func names(image *runtimeapi.Image) []string {
	return append(slices.Clone(image.GetRepoDigests()), image.GetRepoTags()...)
}

// Policy says when images are removed.
type Policy struct {
	// High and Low are percentages of the disk: above High, images are removed
	// until Low is reached.
	High, Low int
	// MinAge is how long an image is safe after it was first seen; MaxAge is how
	// long it may be unused, 0 for any time.
	MinAge, MaxAge time.Duration
}

// unused lists what may be removed, longest unused first.
func unused(records map[string]Record) []Record {
	var list []Record
	for _, r := range records {
		if !r.InUse && !r.Pinned {
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b Record) int {
		return cmp.Or(a.LastUsed.Compare(b.LastUsed), a.FirstSeen.Compare(b.FirstSeen), cmp.Compare(a.ID, b.ID))
	})
	return list
}

// outdated lists the images unused for longer than MaxAge. began is when this
// process began to watch: before MaxAge has passed since, it is not known.
func outdated(records map[string]Record, p Policy, began, now time.Time) []Record {
	if p.MaxAge == 0 || now.Sub(began) <= p.MaxAge {
		return nil
	}
	return slices.DeleteFunc(unused(records), func(r Record) bool { return now.Sub(r.LastUsed) <= p.MaxAge })
}

// toFree lists the images that may be removed to gain space: the longest unused first,
// and none younger than the minimal age.
func toFree(records map[string]Record, p Policy, now time.Time) []Record {
	return slices.DeleteFunc(unused(records), func(r Record) bool { return now.Sub(r.FirstSeen) < p.MinAge })
}

// Disk is the file system images lie on, in bytes.
type Disk struct{ Capacity, Available int64 }

// excess is how many bytes to free, and how full the disk is in percent.
func (p Policy) excess(d Disk) (bytes int64, percent int) {
	available := min(d.Available, d.Capacity)
	percent = 100 - int(available*100/d.Capacity)
	if percent < p.High {
		return 0, percent
	}
	return d.Capacity*int64(100-p.Low)/100 - available, percent
}
