// SPDX-License-Identifier: Apache-2.0

package setup_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/services/volume/internal/child"
	"github.com/sextant-node/sextant/services/volume/internal/content"
	"github.com/sextant-node/sextant/services/volume/internal/setup"
	"github.com/sextant-node/sextant/test/volumetest"
)

// The uids and capabilities volume and podworker run with (docs/architecture.md,
// the owner table).
const (
	volumeUID, podworkerUID = 64204, 64201
	unprivileged            = "SEXTANT_TEST_VOLUME_ROOT"
)

var capabilities = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_CHOWN, unix.CAP_FOWNER, unix.CAP_DAC_OVERRIDE, unix.CAP_FSETID}

func TestMain(m *testing.M) {
	volumetest.Child(func(root string) error { return child.Serve(os.Stdin, os.Stdout, setup.Steps(root)) })
	if root := os.Getenv(unprivileged); root != "" {
		if err := everyVolume(root); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// everyVolume is what the process without root's rights does.
func everyVolume(root string) error {
	h, group := setup.NewHost(root), int64(2000)
	p := newPod(&group)
	memory, create := emptyDir(v1.StorageMediumMemory), v1.HostPathDirectoryOrCreate
	memory.Name = "m"
	secret := &v1.Volume{Name: "s", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}}
	hostPath := &v1.Volume{Name: "h", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: filepath.Join(root, "rooms/host"), Type: &create}}}
	dir, err := h.EmptyDir(p, emptyDir(""), 0)
	_, memoryErr := h.EmptyDir(p, memory, 1<<20)
	_, secretErr := h.Files(p, secret, &content.Set{Files: map[string]content.File{"a/b": {Data: []byte("x"), Mode: 0o400}}}, noon)
	_, hostErr := h.HostPath(hostPath)
	_, subErr := h.Subpath("u", "v", "c", 0, dir, "part")
	plain := emptyDir("")
	plain.Name = "p"
	dir, plainErr := h.EmptyDir(newPod(nil), plain, 0)
	_, deepErr := h.Subpath("u", "p", "c", 1, dir, "deep/part")
	if err := errors.Join(err, memoryErr, secretErr, hostErr, subErr, plainErr, deepErr); err != nil {
		return err
	}
	if os.Getenv("SEXTANT_TEST_REMOVE") != "" {
		return h.Remove("u")
	}
	return nil
}

func asVolume(t *testing.T, root string, env ...string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(append(os.Environ(), unprivileged+"="+root), env...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: volumeUID, Gid: volumeUID}, AmbientCaps: capabilities,
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("without root's rights: %v\n%s", err, out)
	}
}

// TestWithoutRootsRights: the same results as root's, with the capabilities of
// the owner table alone.
func TestWithoutRootsRights(t *testing.T) {
	root := volumetest.Root(t)
	pods := filepath.Join(root, "pods")
	if err := errors.Join(os.Chown(pods, podworkerUID, podworkerUID), os.Chmod(pods, 0o751), os.Mkdir(filepath.Join(root, "rooms"), 0o700)); err != nil {
		t.Fatal(err)
	}
	asVolume(t, root)
	volumes := filepath.Join(pods, "u/volumes")
	for path, want := range map[string]string{
		filepath.Join(pods, "u"):                                      fmt.Sprintf("%d:%d 750", podworkerUID, podworkerUID),
		filepath.Join(volumes, "kubernetes.io~empty-dir/v"):           "0:2000 2777",
		filepath.Join(volumes, "kubernetes.io~empty-dir/m"):           "0:2000 3777",
		filepath.Join(volumes, "kubernetes.io~secret/s"):              "0:2000 3777",
		filepath.Join(volumes, "kubernetes.io~secret/s/..data/a"):     "0:2000 2755",
		filepath.Join(volumes, "kubernetes.io~secret/s/a/b"):          "0:2000 440",
		filepath.Join(root, "rooms/host"):                             "0:0 755",
		filepath.Join(volumes, "kubernetes.io~empty-dir/v/part"):      "0:2000 2777",
		filepath.Join(pods, "u/volume-subpaths/v/c/0"):                "0:2000 2777",
		filepath.Join(volumes, "kubernetes.io~empty-dir/p"):           "0:0 777",
		filepath.Join(volumes, "kubernetes.io~empty-dir/p/deep"):      "0:0 777",
		filepath.Join(volumes, "kubernetes.io~empty-dir/p/deep/part"): "0:0 777",
	} {
		if got := look(t, path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	asVolume(t, root, "SEXTANT_TEST_REMOVE=1")
	if points := volumetest.Mounts(t, root); len(points) > 0 {
		t.Errorf("mounts left: %v", points)
	}
	if _, err := os.Lstat(volumes); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("volumes left: %v", err)
	}
}
