// SPDX-License-Identifier: Apache-2.0

package localruntime

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// criNamespace is the containerd namespace that CRI works in.
const criNamespace = "k8s.io"

// ImportImage loads an image archive (docker-archive or OCI layout tar) and
// returns when CRI knows the name. An image of that name that is already there
// is replaced.
func (r *Runtime) ImportImage(ctx context.Context, archive, name string) error {
	// Of two at a time ctr has one make an image that the other has made meanwhile, and fail.
	r.importing.Lock()
	defer r.importing.Unlock()
	args := []string{"--address", r.cfg.Socket, "--namespace", criNamespace, "images", "import",
		"--snapshotter", snapshotterFor(r.cfg.root()), archive}
	if out, err := exec.CommandContext(ctx, r.bin.ctr, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("import image %s: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	// The import writes to containerd's store; the CRI plugin learns of it by an event.
	wait, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("CRI does not list it"))
	defer cancel()
	if err := poll(wait, func() bool { ok, err := r.HasImage(wait, name); return ok && err == nil }); err != nil {
		return fmt.Errorf("import image %s from %s: %w", name, archive, err)
	}
	return nil
}

// HasImage reports whether CRI knows an image of that name.
func (r *Runtime) HasImage(ctx context.Context, name string) (bool, error) {
	conn, err := Dial(r.cfg.Socket)
	if err != nil {
		return false, err
	}
	defer conn.Close() //nolint:errcheck // nothing was written
	resp, err := runtimeapi.NewImageServiceClient(conn).ImageStatus(ctx, &runtimeapi.ImageStatusRequest{
		Image: &runtimeapi.ImageSpec{Image: name},
	})
	if err != nil {
		return false, fmt.Errorf("look for image %s: %w", name, err)
	}
	return resp.GetImage() != nil, nil
}

// SetRegistry sends pulls of images of the registry host ("sextant.local",
// "127.0.0.1:5000") to the given base URL, plain http included. It takes effect
// with the next pull, without a restart.
func (r *Runtime) SetRegistry(host, base string) error {
	u, err := url.Parse(base)
	if err != nil {
		return fmt.Errorf("registry %s: %w", host, err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("registry %s: %q is no http address", host, base)
	}
	if host == "" || strings.ContainsAny(host, "/\\") {
		return fmt.Errorf("registry %q: not a host", host)
	}
	dir := filepath.Join(r.cfg.certsDir(), host)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("registry %s: %w", host, err)
	}
	text := fmt.Sprintf("server = %q\n\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", base, base)
	if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(text), 0o644); err != nil {
		return fmt.Errorf("registry %s: %w", host, err)
	}
	return nil
}
