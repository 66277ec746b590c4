// SPDX-License-Identifier: Apache-2.0

package tools

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// The tools here are programs: this binary under other names. Each finds its state in
// the folder above the one it is started from.
var programs = map[string]func(state string, args []string) int{
	"mount": fakeMount, "umount": fakeUmount, "iscsiadm": fakeISCSIAdm, "multipath": fakeMultipath,
	"blkid": fakeBlkid, "fsck": fakeFsck, "mkfs.ext4": fakeMkfs,
}

func TestMain(m *testing.M) {
	if program, ok := programs[filepath.Base(os.Args[0])]; ok {
		os.Exit(program(filepath.Dir(filepath.Dir(os.Args[0])), os.Args[1:]))
	}
	os.Exit(m.Run())
}

// bench is a server over those programs.
type bench struct {
	*testing.T
	*Server
	state string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	state := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t, nil, state}
	b.mkdir("bin")
	b.mkdir("root/pods")
	for name := range programs {
		if err := os.Symlink(self, filepath.Join(state, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"sh", "dd"} {
		if err := os.Symlink(filepath.Join("/bin", name), filepath.Join(state, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	b.Server = New(Config{
		Root: filepath.Join(state, "root"), Path: filepath.Join(state, "bin"), Host: b.mkdir("host"), Log: slog.New(slog.DiscardHandler),
	})
	return b
}

func (b *bench) mkdir(rel string) string {
	b.Helper()
	dir := filepath.Join(b.state, rel)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		b.Fatal(err)
	}
	return dir
}

// asked are the arguments that programs were started with.
func (b *bench) asked() []string {
	b.Helper()
	text, err := os.ReadFile(filepath.Join(b.state, "asked"))
	if err != nil && !os.IsNotExist(err) {
		b.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
}

func note(state, line string) {
	f, err := os.OpenFile(filepath.Join(state, "asked"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	fmt.Fprintln(f, line)
}

// fakeMount mounts exports, which are folders below exports/<server>, as mount -t nfs
// does, or as a server lets it: "gone" never answers, "denies" says no.
func fakeMount(state string, args []string) int {
	note(state, "mount "+strings.Join(args, " "))
	if args[1] != "nfs" {
		return mountDisk(state, args)
	}
	var options []string
	if len(args) == 7 && args[2] == "-o" {
		options = strings.Split(args[3], ",")
		args = slices.Delete(slices.Clone(args), 2, 4)
	}
	if len(args) != 5 || args[0] != "-t" || args[1] != "nfs" || args[2] != "--" {
		fmt.Fprintln(os.Stderr, "mount: bad usage")
		return 1
	}
	server, path, _ := strings.Cut(args[3], ":/")
	switch {
	case server == "gone":
		if err := os.WriteFile(filepath.Join(state, "waiting"), nil, 0o644); err != nil {
			panic(err)
		}
		if _, err := os.Stdin.Read(make([]byte, 1)); err != nil { // /dev/null
			for {
				unix.Pause() //nolint:errcheck // until it is killed
			}
		}
	case server == "denies":
		fmt.Fprintln(os.Stderr, "mount.nfs: access denied by server while mounting denies:/"+path)
		return 32
	case slices.Contains(options, "bg"):
		return 0
	}
	source := filepath.Join(state, "exports", server, path)
	if err := unix.Mount(source, args[4], "", unix.MS_BIND, ""); err != nil {
		fmt.Fprintln(os.Stderr, "mount.nfs:", err)
		return 32
	}
	if slices.Contains(options, "ro") {
		if err := unix.Mount("", args[4], "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
			fmt.Fprintln(os.Stderr, "mount.nfs:", err)
			return 32
		}
	}
	return 0
}
