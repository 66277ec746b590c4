// SPDX-License-Identifier: Apache-2.0

// Package stallfs is a FUSE file system for tests that stops answering when it
// is told to: a call into it then waits in the kernel (state D, deaf to SIGKILL)
// until the file system is let go. A remote file system whose server is gone
// looks like that.
package stallfs

import (
	"context"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// FS is one mounted file system: a folder "folder" with a file "file" that
// reads "still here".
type FS struct {
	Dir string

	mu   sync.Mutex
	gate chan struct{} // nil: it answers
	held int
}

// Mount mounts one at a new folder until the test ends.
func Mount(t testing.TB) *FS {
	t.Helper()
	return MountAt(t, t.TempDir())
}

// MountAt mounts one at a folder that is there.
func MountAt(t testing.TB, dir string) *FS {
	t.Helper()
	f := &FS{Dir: dir}
	never := time.Duration(0) // nothing is cached: every call asks
	_, err := fs.Mount(dir, &node{fs: f, dir: true}, &fs.Options{
		EntryTimeout: &never, AttrTimeout: &never,
		MountOptions: fuse.MountOptions{DirectMountStrict: true, AllowOther: true, FsName: "stallfs", Name: "stallfs"},
	})
	if err != nil {
		t.Fatalf("mount of a FUSE file system: %v", err)
	}
	if err := keep(); err != nil {
		t.Fatalf("the device of a FUSE file system: %v", err)
	}
	t.Cleanup(func() {
		f.Go()
		// Whoever still has it open keeps it alive, but no longer in the tree.
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil && err != syscall.EINVAL && err != syscall.ENOENT {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return f
}

// keep has no child of this process inherit the device of a FUSE file system: the kernel ends
// what waits for an answer when the last who has the device is gone, and a child that waits
// itself would wait for ever.
func keep() error {
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, f := range files {
		fd, err := strconv.Atoi(f.Name())
		if err != nil {
			return err
		}
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && to == "/dev/fuse" {
			syscall.CloseOnExec(fd)
		}
	}
	return nil
}

// Stall stops answering; Go answers again, what was asked meanwhile too.
func (f *FS) Stall() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gate == nil {
		f.gate = make(chan struct{})
	}
}

// Go answers again.
func (f *FS) Go() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gate != nil {
		close(f.gate)
		f.gate = nil
	}
}

func (f *FS) wait() {
	f.mu.Lock()
	gate := f.gate
	if gate != nil {
		f.held++
	}
	f.mu.Unlock()
	if gate == nil {
		return
	}
	<-gate
	f.mu.Lock()
	f.held--
	f.mu.Unlock()
}

// Held is how many calls wait for an answer: who made them is deaf to signals.
func (f *FS) Held() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held
}

type node struct {
	fs.Inode
	fs  *FS
	dir bool
}

const text = "still here"

var (
	_ fs.NodeLookuper  = (*node)(nil)
	_ fs.NodeGetattrer = (*node)(nil)
	_ fs.NodeReaddirer = (*node)(nil)
	_ fs.NodeStatfser  = (*node)(nil)
	_ fs.NodeOpener    = (*node)(nil)
	_ fs.NodeReader    = (*node)(nil)
)

func (n *node) attr(out *fuse.Attr) {
	out.Mode = syscall.S_IFREG | 0o644
	out.Size = uint64(len(text))
	if n.dir {
		out.Mode, out.Size = syscall.S_IFDIR|0o755, 0
	}
}

func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	n.fs.wait()
	child := &node{fs: n.fs, dir: name == "folder"}
	if !n.dir || name != "folder" && name != "file" {
		return nil, syscall.ENOENT
	}
	child.attr(&out.Attr)
	return n.NewInode(ctx, child, fs.StableAttr{Mode: out.Attr.Mode & syscall.S_IFMT}), 0
}

func (n *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	n.fs.wait()
	n.attr(&out.Attr)
	return 0
}

func (n *node) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	n.fs.wait()
	return fs.NewListDirStream([]fuse.DirEntry{{Name: "file", Mode: syscall.S_IFREG}, {Name: "folder", Mode: syscall.S_IFDIR}}), 0
}

func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	n.fs.wait()
	out.Bsize, out.Frsize, out.Blocks, out.Bfree, out.Bavail = 1<<20, 4096, 1024, 512, 512 // a remote one is best read in large pieces
	return 0
}

func (n *node) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	n.fs.wait()
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (n *node) Read(_ context.Context, _ fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	n.fs.wait()
	from := min(int(off), len(text))
	return fuse.ReadResultData([]byte(text)[from:min(from+len(dest), len(text))]), 0
}
