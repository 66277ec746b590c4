// SPDX-License-Identifier: Apache-2.0

package fakecri

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// files is what the processes of a container see: a few files in memory, and
// the host's own under each mount.
type files struct {
	mounts   []*runtimeapi.Mount // longest container path first
	readonly bool                // what is not under a mount

	mu   sync.Mutex
	data map[string][]byte
}

var (
	errNoFile   = errors.New("No such file or directory") //nolint:staticcheck // the words of strerror
	errReadOnly = errors.New("Read-only file system")     //nolint:staticcheck // the words of strerror
)

// newFiles begins with the two files that a runtime makes itself.
func newFiles(sb *sandbox, config *runtimeapi.ContainerConfig) *files {
	f := &files{
		mounts:   slices.Clone(config.GetMounts()),
		readonly: config.GetLinux().GetSecurityContext().GetReadonlyRootfs(),
		data: map[string][]byte{
			"/etc/hostname":    []byte(sb.hostname() + "\n"),
			"/etc/resolv.conf": resolvConf(sb.config.GetDnsConfig()),
		},
	}
	slices.SortStableFunc(f.mounts, func(a, b *runtimeapi.Mount) int {
		return len(b.GetContainerPath()) - len(a.GetContainerPath())
	})
	return f
}

func resolvConf(dns *runtimeapi.DNSConfig) []byte {
	var b strings.Builder
	if s := dns.GetSearches(); len(s) > 0 {
		b.WriteString("search " + strings.Join(s, " ") + "\n")
	}
	for _, s := range dns.GetServers() {
		b.WriteString("nameserver " + s + "\n")
	}
	if o := dns.GetOptions(); len(o) > 0 {
		b.WriteString("options " + strings.Join(o, " ") + "\n")
	}
	return []byte(b.String())
}

// host finds the host's path of a path under a mount.
func (f *files) host(name string) (p string, readonly, ok bool) {
	for _, m := range f.mounts {
		rest, under := strings.CutPrefix(name, strings.TrimSuffix(m.GetContainerPath(), "/"))
		if under && (rest == "" || rest[0] == '/') && m.GetHostPath() != "" {
			return filepath.Join(m.GetHostPath(), rest), m.GetReadonly(), true
		}
	}
	return "", false, false
}

func (f *files) Read(name string) ([]byte, error) {
	name = path.Clean(name)
	if p, _, ok := f.host(name); ok {
		data, err := os.ReadFile(p)
		return data, inContainer(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	data, ok := f.data[name]
	if !ok {
		return nil, errNoFile
	}
	return data, nil
}

func (f *files) Write(name string, data []byte, appending bool) error {
	name = path.Clean(name)
	if p, readonly, ok := f.host(name); ok {
		if readonly {
			return errReadOnly
		}
		flags := os.O_CREATE | os.O_WRONLY | os.O_TRUNC
		if appending {
			flags = os.O_CREATE | os.O_WRONLY | os.O_APPEND
		}
		w, err := os.OpenFile(p, flags, 0o644)
		if err != nil {
			return inContainer(err)
		}
		_, err = w.Write(data)
		return inContainer(errors.Join(err, w.Close()))
	}
	if f.readonly {
		return errReadOnly
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if appending {
		data = slices.Concat(f.data[name], data)
	}
	f.data[name] = slices.Clone(data)
	return nil
}

func (f *files) Remove(name string) error {
	name = path.Clean(name)
	if p, readonly, ok := f.host(name); ok {
		if readonly {
			return errReadOnly
		}
		return inContainer(os.Remove(p))
	}
	if f.readonly {
		return errReadOnly
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.data[name]; !ok {
		return errNoFile
	}
	delete(f.data, name)
	return nil
}

// inContainer keeps the host's paths out of what a container is told.
func inContainer(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return errNoFile
	}
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
