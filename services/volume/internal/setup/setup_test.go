// SPDX-License-Identifier: Apache-2.0

package setup_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/pkg/pod/volumetype"
	"github.com/sextant-node/sextant/services/volume/internal/atomic"
	"github.com/sextant-node/sextant/services/volume/internal/content"
	"github.com/sextant-node/sextant/services/volume/internal/setup"
	"github.com/sextant-node/sextant/test/volumetest"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func host(t *testing.T) *setup.Host {
	t.Helper()
	return setup.NewHost(volumetest.Root(t))
}

func newPod(group *int64) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "u", Namespace: "ns", Name: "p"},
		Spec:       v1.PodSpec{SecurityContext: &v1.PodSecurityContext{FSGroup: group}},
	}
}

func emptyDir(medium v1.StorageMedium) *v1.Volume {
	return &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: medium}}}
}

// look is owner, group and mode of a path.
func look(t *testing.T, path string) string {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	return fmt.Sprintf("%d:%d %o", st.Uid, st.Gid, st.Mode&0o7777)
}

func fsType(t *testing.T, path string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Type
}

func TestEmptyDir(t *testing.T) {
	group := int64(2000)
	for name, test := range map[string]struct {
		medium v1.StorageMedium
		group  *int64
		look   string
	}{
		"disk":            {"", nil, "0:0 777"},
		"disk, fsGroup":   {"", &group, "0:2000 2777"},
		"memory":          {v1.StorageMediumMemory, nil, "0:0 1777"},
		"memory, fsGroup": {v1.StorageMediumMemory, &group, "0:2000 3777"},
	} {
		t.Run(name, func(t *testing.T) {
			h, p, v := host(t), newPod(test.group), emptyDir(test.medium)
			if _, ok := h.StandingEmptyDir(p, v); ok {
				t.Error("stands before it was made")
			}
			dir, err := h.EmptyDir(p, v, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			if want := h.Layout.Root + "/pods/u/volumes/kubernetes.io~empty-dir/v"; dir != want {
				t.Errorf("at %s, want %s", dir, want)
			}
			if got := look(t, dir); got != test.look {
				t.Errorf("is %s, want %s", got, test.look)
			}
			if memory := fsType(t, dir) == unix.TMPFS_MAGIC; memory != (test.medium != "") {
				t.Errorf("in memory: %v", memory)
			}
			// The containers change rights and contents; a second look leaves both.
			write(t, filepath.Join(dir, "data"), "precious")
			if err := os.Chmod(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if at, ok := h.StandingEmptyDir(p, v); !ok || at != dir {
				t.Errorf("standing: %q, %v", at, ok)
			}
			if _, err := h.EmptyDir(p, v, 1<<20); err != nil {
				t.Fatal(err)
			}
			if got := look(t, dir); !strings.HasSuffix(got, " 700") {
				t.Errorf("rights were set again: %s", got)
			}
			if got := read(t, filepath.Join(dir, "data")); got != "precious" {
				t.Errorf("contents %q", got)
			}
		})
	}
}

func TestEmptyDirHalfMade(t *testing.T) {
	h, p, v := host(t), newPod(nil), emptyDir("")
	dir, err := h.EmptyDir(p, v, 0)
	if err != nil {
		t.Fatal(err)
	}
	// Without its mark it was never used: a crash came in between.
	mark := filepath.Join(h.Layout.Pod("u"), "plugins/kubernetes.io~empty-dir/v/ready")
	if err := os.Remove(mark); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, ok := h.StandingEmptyDir(p, v); ok {
		t.Error("stands without its mark")
	}
	if _, err := h.EmptyDir(p, v, 0); err != nil {
		t.Fatal(err)
	}
	if got := look(t, dir); got != "0:0 777" {
		t.Errorf("is %s after it was finished", got)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	h := host(t)
	dir, err := h.EmptyDir(newPod(nil), emptyDir(v1.StorageMediumMemory), 3<<20)
	if err != nil {
		t.Fatal(err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	if got := int64(st.Blocks) * st.Bsize; got != 3<<20 {
		t.Errorf("size %d, want %d", got, 3<<20)
	}
}

func TestMemoryIsMountedAgainAfterAReboot(t *testing.T) {
	h, p, v := host(t), newPod(nil), emptyDir(v1.StorageMediumMemory)
	dir, err := h.EmptyDir(p, v, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
	if _, ok := h.StandingEmptyDir(p, v); ok {
		t.Error("stands without its mount")
	}
	if _, err := h.EmptyDir(p, v, 0); err != nil {
		t.Fatal(err)
	}
	if fsType(t, dir) != unix.TMPFS_MAGIC {
		t.Error("not mounted again")
	}
}

func TestEmptyDirErrors(t *testing.T) {
	asks := newPod(nil)
	asks.Spec.Containers = []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{
		"hugepages-2Mi": resource.MustParse("2Mi"), "hugepages-1Gi": resource.MustParse("1Gi"),
	}}}}
	for want, test := range map[string]struct {
		pod    *v1.Pod
		medium v1.StorageMedium
	}{
		`emptyDir.medium: unknown medium "Paper"`: {newPod(nil), "Paper"},
		`the pod requests 0 page sizes`:           {newPod(nil), v1.StorageMediumHugePages},
		`the pod requests 2 page sizes`:           {asks, v1.StorageMediumHugePages},
		`emptyDir.medium "HugePages-x"`:           {newPod(nil), "HugePages-x"},
	} {
		if _, err := host(t).EmptyDir(test.pod, emptyDir(test.medium), 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", test.medium, err, want)
		}
	}
}

func TestHostPath(t *testing.T) {
	base := t.TempDir()
	at := func(name string) string { return filepath.Join(base, name) }
	write(t, at("file"), "x")
	socket, err := net.Listen("unix", at("socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	block := 0
	if err := unix.Mknod(at("block"), unix.S_IFBLK|0o600, int(unix.Mkdev(7, 200))); err == nil {
		block = 1 // not every machine lets tests make devices
	}
	const fine = ""
	for _, test := range []struct {
		kind v1.HostPathType
		path string
		want string // the error
		look string // what was made
	}{
		{v1.HostPathUnset, at("nothing"), fine, ""},
		{v1.HostPathDirectory, base, fine, ""},
		{v1.HostPathDirectory, at("file"), "hostPath type check failed: " + at("file") + " is not a directory", ""},
		{v1.HostPathDirectory, at("nothing"), "hostPath type check failed: " + at("nothing") + " is not a directory", ""},
		{v1.HostPathDirectoryOrCreate, base, fine, ""},
		{v1.HostPathDirectoryOrCreate, at("new/deep"), fine, "0:0 755"},
		{v1.HostPathDirectoryOrCreate, at("file"), "is not a directory", ""},
		{v1.HostPathDirectoryOrCreate, at("file/below"), "not a directory", ""},
		{v1.HostPathFile, at("file"), fine, ""},
		{v1.HostPathFile, base, "is not a file", ""},
		{v1.HostPathFile, at("nothing"), "is not a file", ""},
		{v1.HostPathFileOrCreate, at("file"), fine, ""},
		{v1.HostPathFileOrCreate, at("made"), fine, "0:0 644"},
		{v1.HostPathFileOrCreate, at("no/such/folder"), "no such file or directory", ""},
		{v1.HostPathSocket, at("socket"), fine, ""},
		{v1.HostPathSocket, at("file"), "is not a socket file", ""},
		{v1.HostPathCharDev, "/dev/null", fine, ""},
		{v1.HostPathCharDev, at("file"), "is not a character device", ""},
		{v1.HostPathBlockDev, "/dev/null", "is not a block device", ""},
		{v1.HostPathBlockDev, at("block"), []string{"is not a block device", fine}[block], ""},
		{"Cloud", base, `hostPath.type: unknown type "Cloud"`, ""},
	} {
		name := fmt.Sprintf("%s %s", test.kind, filepath.Base(test.path))
		kind := test.kind
		path, err := setup.NewHost("").HostPath(&v1.Volume{VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: test.path, Type: &kind}}})
		switch {
		case test.want == fine && err != nil:
			t.Errorf("%s: %v", name, err)
		case test.want != fine && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: %v, want %q", name, err, test.want)
		case err == nil && path != test.path:
			t.Errorf("%s: at %s", name, path)
		}
		if test.look != "" {
			if got := look(t, test.path); got != test.look {
				t.Errorf("%s: %s, want %s", name, got, test.look)
			}
		}
	}
	if got := look(t, at("new")); got != "0:0 755" {
		t.Errorf("a folder on the way is %s", got)
	}
	if got := read(t, at("file")); got != "x" {
		t.Errorf("a file that was there holds %q", got)
	}
}

func TestFiles(t *testing.T) {
	group, user := int64(2000), int64(1000)
	set := &content.Set{Files: map[string]content.File{
		"plain": {Data: []byte("1"), Mode: 0o644}, "secret": {Data: []byte("2"), Mode: 0o400}, "d/own": {Data: []byte("3"), Mode: 0o600, UID: &user},
	}}
	configMap := v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}
	secret := v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}
	downward := v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{}}
	for name, test := range map[string]struct {
		source v1.VolumeSource
		group  *int64
		want   map[string]string
	}{
		"configMap": {configMap, nil, map[string]string{"": "0:0 777", "..data/plain": "0:0 644", "..data/secret": "0:0 400", "..data/d/own": "1000:0 600", "..data/d": "0:0 755"}},
		"configMap, fsGroup": {configMap, &group, map[string]string{
			"": "0:2000 2777", "..data/plain": "0:2000 644", "..data/secret": "0:2000 440", "..data/d/own": "1000:2000 640", "..data/d": "0:2000 2755"}},
		"secret":      {secret, nil, map[string]string{"": "0:0 1777", "..data/secret": "0:0 400"}},
		"downwardAPI": {downward, nil, map[string]string{"": "0:0 1777", "..data/plain": "0:0 644"}},
	} {
		t.Run(name, func(t *testing.T) {
			h, p := host(t), newPod(test.group)
			v := &v1.Volume{Name: "v", VolumeSource: test.source}
			if _, ok := h.StandingFiles(p, v); ok {
				t.Error("stands before it was made")
			}
			dir, err := h.Files(p, v, set, noon)
			if err != nil {
				t.Fatal(err)
			}
			for path, want := range test.want {
				if got := look(t, filepath.Join(dir, path)); got != want {
					t.Errorf("%q is %s, want %s", path, got, want)
				}
			}
			if memory := fsType(t, dir) == unix.TMPFS_MAGIC; memory != (test.source.ConfigMap == nil) {
				t.Errorf("in memory: %v", memory)
			}
			if at, ok := h.StandingFiles(p, v); !ok || at != dir {
				t.Errorf("standing: %q, %v", at, ok)
			}
			// Again: the same mount, the same files.
			before := read(t, filepath.Join(dir, "plain"))
			if _, err := h.Files(p, v, set, noon); err != nil {
				t.Fatal(err)
			}
			if got := read(t, filepath.Join(dir, "plain")); got != before {
				t.Errorf("reads %q", got)
			}
			if n := len(volumetest.Mounts(t, dir)); n > 1 {
				t.Errorf("%d mounts on one another", n)
			}
		})
	}
}

func TestPodFolderBelongsToTheOwnerOfPods(t *testing.T) {
	h := host(t)
	if err := os.Chown(h.Layout.Pods(), 4711, 4712); err != nil {
		t.Fatal(err)
	}
	if _, err := h.EmptyDir(newPod(nil), emptyDir(""), 0); err != nil {
		t.Fatal(err)
	}
	if got := look(t, h.Layout.Pod("u")); got != "4711:4712 750" {
		t.Errorf("the pod's folder is %s", got)
	}
}

func TestFound(t *testing.T) {
	h := host(t)
	for uid, names := range map[types.UID][]string{"a": {"v", "w"}, "b": {"x"}} {
		for _, name := range names {
			p, v := newPod(nil), emptyDir("")
			p.UID, v.Name = uid, name
			if _, err := h.EmptyDir(p, v, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.MkdirAll(h.Layout.Containers("without"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(h.Layout.Pods(), "stray"), "no folder")
	// A kubelet has unmounted the volumes of one pod, and another had none.
	for _, left := range []string{filepath.Join(h.Layout.Volumes("left"), "kubernetes.io~projected"), h.Layout.Plugins("none")} {
		if err := os.MkdirAll(left, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	found, err := h.Found()
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(found); got != "map[a:[v w] b:[x] left:[] none:[]]" {
		t.Errorf("found %s", got)
	}
	if found, err := setup.NewHost(filepath.Join(h.Layout.Root, "nowhere")).Found(); err != nil || len(found) > 0 {
		t.Errorf("without a pods folder: %v, %v", found, err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestDownwardAPIOfAnEarlierVersion: what version 0.1 wrote on the disk is kept up there, where
// the containers have it.
func TestDownwardAPIOfAnEarlierVersion(t *testing.T) {
	h, p := host(t), newPod(nil)
	v := &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{}}}
	dir := h.Dir(p.UID, volumetype.DownwardAPI, v.Name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	folder := atomic.Folder{Path: dir, Root: 0o755, Mode: 0o755}
	if _, err := folder.Write(map[string]atomic.File{"labels": {Data: []byte("old"), Mode: 0o644}}, noon); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(dir) // as a container's mount does
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close() //nolint:errcheck // only read
	set := &content.Set{Files: map[string]content.File{"labels": {Data: []byte("new"), Mode: 0o644}}}
	if _, err := h.Files(p, v, set, noon.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if got := read(t, fmt.Sprintf("/proc/self/fd/%d/labels", held.Fd())); got != "new" {
		t.Errorf("the container reads %q", got)
	}
}
