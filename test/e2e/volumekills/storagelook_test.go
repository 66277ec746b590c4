// SPDX-License-Identifier: Apache-2.0

package volumekills_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/test/e2e/harness"
	"github.com/sextant-node/sextant/test/e2e/killmatrix/judge"
)

// mount tells a mount from another one at the same place.
type mount struct {
	id    uint64 // the topmost one's, never used again where the kernel has such
	times int
}

// mountsBelow are the mounts in a folder, by mount point.
func mountsBelow(dir string) map[string]mount {
	all := map[string]mount{}
	for _, point := range harness.Mounts(dir) {
		var st unix.Statx_t
		m := all[point]
		m.times++
		// Since Linux 6.8 no mount gets the number of an earlier one.
		if err := unix.Statx(unix.AT_FDCWD, point, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID|unix.STATX_MNT_ID_UNIQUE, &st); err == nil {
			m.id = st.Mnt_id
		}
		all[point] = m
	}
	return all
}

// whole says what is not as it was with the pods that stay: their mounts, and what
// their containers read.
func (s *storage) whole() (found []judge.Finding) {
	now := mountsBelow(s.Node.Root)
	for _, point := range slices.Sorted(maps.Keys(s.mounts)) {
		if was := s.mounts[point]; now[point] != was {
			found = append(found, judge.Finding{Kind: judge.Unmounted, What: fmt.Sprintf("%s was mount %+v and is %+v", point, was, now[point])})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.holds)) {
		if err := s.reads(s.T.Context(), name, s.holds[name]); err != nil {
			found = append(found, judge.Finding{Kind: judge.Changed, What: err.Error()})
		}
	}
	return found
}

// reads says which file a container reads otherwise than it should. Asking may
// fail for a while; the first answer counts.
func (s *storage) reads(ctx context.Context, pod string, holds map[string]string) error {
	if s.device != "" {
		holds = maps.Clone(holds)
		holds["/dev/raw"] = blocks
	}
	for _, path := range slices.Sorted(maps.Keys(holds)) {
		var got string
		err := harness.Within(ctx, 2*time.Minute, func(ctx context.Context) (err error) {
			got, err = s.file(ctx, pod, path)
			return err
		})
		if err == nil && got != holds[path] {
			err = fmt.Errorf("reads %.40q, not %.40q", got, holds[path])
		}
		if err != nil {
			return fmt.Errorf("pod %s: %s: %w", pod, path, err)
		}
	}
	return nil
}

// file is what a container reads; what it cannot read is told as text.
func (s *storage) file(ctx context.Context, pod, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Told(pod).Status.PodIP+":8080/file?path="+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		b = append([]byte(resp.Status+": "), b...)
	}
	return string(b), errors.Join(err, resp.Body.Close())
}

// sources says which files of volumes that outlive pods are not as they were.
func (s *storage) sources() (found []judge.Finding) {
	for _, path := range slices.Sorted(maps.Keys(s.outside)) {
		if got, err := os.ReadFile(path); err != nil || string(got) != s.outside[path] {
			found = append(found, judge.Finding{Kind: judge.Changed, What: fmt.Sprintf("%s holds %.40q, %v, not %.40q", path, got, err, s.outside[path])})
		}
	}
	return found
}

// left says what is left of pods other than these, and what is staged beside these
// mount points.
func (s *storage) left(uids, stages map[string]bool) error {
	var errs []error
	pods := filepath.Join(s.Node.Root, "pods")
	entries, err := os.ReadDir(pods)
	errs = append(errs, err)
	for _, e := range entries {
		if !uids[e.Name()] {
			errs = append(errs, fmt.Errorf("folder %s", filepath.Join(pods, e.Name())))
		}
	}
	for point := range mountsBelow(s.Node.Root) {
		rel, err := filepath.Rel(pods, point)
		if err == nil && filepath.IsLocal(rel) && uids[strings.Split(rel, "/")[0]] {
			continue
		}
		if !stages[point] && point != s.Node.Root {
			errs = append(errs, fmt.Errorf("mount %s", point))
		}
	}
	return errors.Join(errs...)
}
