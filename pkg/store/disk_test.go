// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sextant-node/sextant/pkg/fault"
	"github.com/sextant-node/sextant/pkg/store"
	"github.com/sextant-node/sextant/test/disk"
)

// watched opens a store that says when its state changes.
func watched(t *testing.T, path string) (*store.Store, *store.Table[record], chan store.State) {
	t.Helper()
	changed := make(chan store.State, 100)
	cfg := config(path)
	cfg.Now, cfg.Retry = time.Now, 10*time.Millisecond
	cfg.Changed = func(s store.State) { changed <- s }
	s, table, damage := open(t, cfg)
	if damage != nil {
		t.Fatal(damage)
	}
	t.Cleanup(func() { closeStore(t, s) })
	return s, table, changed
}

func until(t *testing.T, changed chan store.State, what string, ok func(store.State) bool) {
	t.Helper()
	limit := time.After(time.Minute)
	for {
		select {
		case state := <-changed:
			if ok(state) {
				return
			}
		case <-limit:
			t.Fatalf("never: %s", what)
		}
	}
}

func troubled(s store.State) bool { return s.Trouble != nil }
func well(s store.State) bool     { return s.Trouble == nil }

// TestAFullDisk: what is written meanwhile is in memory, is read from there, and
// reaches the disk when there is room.
func TestAFullDisk(t *testing.T) {
	for _, fault := range []struct {
		name     string
		set, end func(*disk.Disk)
		cause    error
	}{
		{"full", (*disk.Disk).Fill, (*disk.Disk).Free, syscall.ENOSPC},
		{"read-only from the start", func(d *disk.Disk) { d.ReadOnly(true) }, func(d *disk.Disk) { d.ReadOnly(false) }, syscall.EROFS},
	} {
		t.Run(fault.name, func(t *testing.T) {
			d := disk.Small(t, "1m")
			path := filepath.Join(d.Dir, "a", "state.db")
			s, table, _ := open(t, config(path))
			for _, name := range []string{"old", "gone"} {
				if err := table.Put(name, record{1}); err != nil {
					t.Fatal(err)
				}
			}
			closeStore(t, s)
			fault.set(d)
			s, table, changed := watched(t, path)
			for i := range 50 {
				if err := table.Put(fmt.Sprint("new", i), record{i}); err != nil {
					t.Fatal(err)
				}
			}
			if err := table.Delete("gone"); err != nil {
				t.Fatal(err)
			}
			until(t, changed, "trouble", troubled)
			if state := s.State(); !errors.Is(state.Trouble, fault.cause) || state.Unwritten == 0 || state.Since.IsZero() {
				t.Errorf("state %+v", state)
			}
			want := func() {
				t.Helper()
				all, err := table.All()
				if err != nil || len(all) != 51 || all["old"].N != 1 || all["new49"].N != 49 {
					t.Errorf("%d records, %v", len(all), err)
				}
				if _, ok, err := table.Get("gone"); ok || err != nil {
					t.Errorf("a deleted record: %v, %v", ok, err)
				}
			}
			want()
			fault.end(d)
			until(t, changed, "the end of it", well)
			want()
			closeStore(t, s)
			_, table, _ = watched(t, path)
			want()
		})
	}
}

// soon fails the test when a call does not come back.
func soon(t *testing.T, what string, call func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- call() }()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatalf("%s hangs", what)
		return nil
	}
}

// TestPagesThatCannotBeRead: the file gets shorter while it is open, so that its pages
// fault as those of a bad disk do. Neither a write nor a read hangs, what is read is
// never "not there", what is written meanwhile is kept, and the next life has it.
func TestPagesThatCannotBeRead(t *testing.T) {
	for _, reads := range []bool{false, true} { // what meets the pages first
		path := filepath.Join(t.TempDir(), "state.db")
		s, table, changed := watched(t, path)
		long := strings.Repeat("k", 200)
		for i := range 200 {
			if err := table.Put(fmt.Sprint(long, i), record{i}); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Truncate(path, 2*int64(os.Getpagesize())); err != nil { // the heads stay
			t.Fatal(err)
		}
		if reads {
			err := soon(t, "a read", func() error { _, err := table.All(); return err })
			if state := s.State(); err == nil && state.Damage == nil {
				t.Errorf("no error of what cannot be read; state %+v", state)
			}
		}
		for i := range 3 {
			if err := soon(t, "a write", func() error { return table.Put(fmt.Sprint("later", i), record{i}) }); err != nil {
				t.Error(err)
			}
		}
		until(t, changed, "trouble", troubled)
		until(t, changed, "the end of it", well)
		if d := s.State().Damage; d == nil || d.Aside == "" {
			t.Errorf("damage %v", d)
		}
		want := func() {
			t.Helper()
			var all map[string]record
			err := soon(t, "a read", func() (err error) { all, err = table.All(); return err })
			if err != nil || all["later0"].N != 0 || all["later2"].N != 2 {
				t.Errorf("%d records, %v", len(all), err)
			}
		}
		want()
		if err := soon(t, "closing", s.Close); err != nil {
			t.Error(err)
		}
		_, table, _ = watched(t, path)
		want()
	}
}

// TestAFileThatIsOpenedLate: what a service went on without at its start does not come
// back behind its back.
func TestAFileThatIsOpenedLate(t *testing.T) {
	dir := t.TempDir()
	there, moved := filepath.Join(dir, "there"), filepath.Join(dir, "moved")
	path := filepath.Join(there, "state.db")
	s, table, _ := open(t, config(path))
	if err := table.Put("old", record{1}); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	// The folder's name stands for a disk that does not let the file be opened.
	if err := errors.Join(os.Rename(there, moved), os.WriteFile(there, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	s, table, changed := watched(t, path)
	if _, ok, err := table.Get("old"); ok || err != nil {
		t.Errorf("%v, %v", ok, err)
	}
	if err := table.Put("new", record{2}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(there), os.Rename(moved, there)); err != nil {
		t.Fatal(err)
	}
	until(t, changed, "the end of the trouble", func(s store.State) bool { return well(s) && s.Damage != nil })
	damage := s.State().Damage
	if !strings.Contains(damage.String(), "could not be opened at the start") {
		t.Errorf("damage %v", damage)
	}
	if _, err := os.Stat(damage.Aside); err != nil {
		t.Error(err)
	}
	for range 2 {
		all, err := table.All()
		if err != nil || len(all) != 1 || all["new"].N != 2 {
			t.Errorf("%v, %v", all, err)
		}
		closeStore(t, s)
		s, table, _ = watched(t, path)
	}
}

// TestAFileThatCanBeOpenedInAMoment is read, and nothing of it is lost.
func TestAFileThatCanBeOpenedInAMoment(t *testing.T) {
	dir := t.TempDir()
	there, moved := filepath.Join(dir, "there"), filepath.Join(dir, "moved")
	path := filepath.Join(there, "state.db")
	s, table, _ := open(t, config(path))
	if err := table.Put("old", record{1}); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	if err := errors.Join(os.Rename(there, moved), os.WriteFile(there, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	back := make(chan error, 1)
	time.AfterFunc(100*time.Millisecond, func() {
		back <- unix.Renameat2(unix.AT_FDCWD, moved, unix.AT_FDCWD, there, unix.RENAME_EXCHANGE)
	})
	_, table, _ = watched(t, path)
	if err := <-back; err != nil {
		t.Fatal(err)
	}
	if r, ok, err := table.Get("old"); !ok || err != nil || r.N != 1 {
		t.Errorf("%v, %v, %v", r, ok, err)
	}
}

// TestADiskThatIsFullFromTheStart has not even room for an empty file, nor for the
// folder.
func TestADiskThatIsFullFromTheStart(t *testing.T) {
	d := disk.Small(t, "64k")
	path := filepath.Join(d.Dir, "state.db")
	d.Fill()
	s, table, changed := watched(t, path)
	until(t, changed, "trouble", troubled)
	if err := table.Put("a", record{1}); err != nil {
		t.Fatal(err)
	}
	d.Free()
	until(t, changed, "the end of it", well)
	closeStore(t, s)
	_, table, _ = watched(t, path)
	if r, ok, err := table.Get("a"); !ok || err != nil || r.N != 1 {
		t.Errorf("%v %v %v", r, ok, err)
	}
}

// TestADamagedFileThatCannotBeMoved: what is whole of it is read, and it is set
// aside as soon as that can be done.
func TestADamagedFileThatCannotBeMoved(t *testing.T) {
	d := disk.Small(t, "1m")
	path := filepath.Join(d.Dir, "state.db")
	s, table, _ := open(t, config(path))
	for i := range 3 {
		if err := table.Put(strings.Repeat("k", 1+i), record{i + 10}); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damagedFile := []byte(strings.ReplaceAll(string(data), `{"N":11}`, `{"N":19}`)) // as valid as it was
	if err := os.WriteFile(path, damagedFile, 0o600); err != nil {
		t.Fatal(err)
	}
	d.ReadOnly(true)
	changed := make(chan store.State, 100)
	cfg := config(path)
	cfg.Now, cfg.Retry, cfg.Changed = time.Now, 10*time.Millisecond, func(s store.State) { changed <- s }
	s, table, damage := open(t, cfg)
	defer closeStore(t, s)
	if damage == nil || damage.Aside != "" || damage.Kept != 2 || !strings.Contains(damage.String(), path) {
		t.Fatalf("damage %v", damage)
	}
	if all, err := table.All(); err != nil || len(all) != 2 || all["k"].N != 10 || all["kkk"].N != 12 {
		t.Errorf("%v, %v", all, err)
	}
	d.ReadOnly(false)
	until(t, changed, "the end of it", well)
	late := s.State().Damage
	if kept, err := os.ReadFile(late.Aside); err != nil || string(kept) != string(damagedFile) {
		t.Errorf("set aside as %q: %v", late.Aside, err)
	}
	if all, err := table.All(); err != nil || len(all) != 2 {
		t.Errorf("%v, %v", all, err)
	}
}

// TestWhatIsNoFile: something else has the name, or the rights are wrong.
func TestWhatIsNoFile(t *testing.T) {
	for name, c := range map[string]struct {
		make  func(path string) error
		aside bool
	}{
		"folder": {func(path string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o755) }, true},
		"pipe":   {func(path string) error { return syscall.Mkfifo(path, 0o600) }, true},
		"empty":  {func(path string) error { return os.WriteFile(path, nil, 0o600) }, true},
		"left half made": {func(path string) error {
			return errors.Join(os.Mkdir(path+".new", 0o755), os.WriteFile(path+".new/x", nil, 0o600))
		}, false},
		"a link to nowhere": {func(path string) error { return os.Symlink("nowhere", path) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			if err := c.make(path); err != nil {
				t.Fatal(err)
			}
			s, table, damage := open(t, config(path))
			if (damage != nil) != c.aside {
				t.Fatalf("damage %v", damage)
			}
			if err := table.Put("a", record{1}); err != nil || s.State().Trouble != nil {
				t.Errorf("%v, %v", err, s.State().Trouble)
			}
			closeStore(t, s)
			if c.aside {
				if _, err := os.Lstat(damage.Aside); err != nil {
					t.Error(err)
				}
			}
			s, table, damage = open(t, config(path))
			defer closeStore(t, s)
			if _, ok, err := table.Get("a"); !ok || err != nil || damage != nil {
				t.Errorf("%v %v %v", ok, err, damage)
			}
		})
	}
}

// TestWrongRights: a file of another user is set aside, one of this user with the
// wrong mode is used; both as a service sees them, which is not root.
func TestWrongRights(t *testing.T) {
	const env = "STORE_TEST_AS_ANOTHER"
	if path := os.Getenv(env); path != "" {
		s, table, damage := open(t, config(path))
		defer closeStore(t, s)
		_, ok, err := table.Get("a")
		fmt.Println("seen:", ok, damage != nil, err, s.State().Trouble)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	const uid = 4713
	exe := filepath.Join(t.TempDir(), "test")
	if err := os.Link(os.Args[0], exe); err != nil {
		data, err := os.ReadFile(os.Args[0])
		if err == nil {
			err = os.WriteFile(exe, data, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		owner int
		mode  os.FileMode
		want  string
	}{
		"mode 0":      {uid, 0, "seen: true false <nil> <nil>"},
		"too open":    {uid, 0o666, "seen: true false <nil> <nil>"},
		"another's":   {0, 0o600, "seen: false true <nil> <nil>"},
		"only to see": {0, 0o644, "seen: false true <nil> <nil>"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "rights")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := os.RemoveAll(dir); err != nil {
					t.Error(err)
				}
			})
			path := filepath.Join(dir, "state.db")
			s, table, _ := open(t, config(path))
			if err := table.Put("a", record{1}); err != nil {
				t.Fatal(err)
			}
			closeStore(t, s)
			if err := errors.Join(os.Chown(dir, uid, uid), os.Chown(path, c.owner, c.owner), os.Chmod(path, c.mode), os.Chmod(filepath.Dir(exe), 0o755), os.Chmod(filepath.Dir(filepath.Dir(exe)), 0o755)); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(exe, "-test.run=^TestWrongRights$", "-test.v")
			cmd.Env, cmd.Dir = append(os.Environ(), env+"="+path), "/"
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), c.want) {
				t.Fatalf("%v\n%s", err, out)
			}
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
		})
	}
}

// TestKilledAtEveryWrite kills a process at each fault point of each write, by
// kill -9, and looks at what it has said was on the disk.
func TestKilledAtEveryWrite(t *testing.T) {
	const env, rounds = "STORE_TEST_WRITES", 6
	if path := os.Getenv(env); path != "" {
		s, table, damage := open(t, config(path))
		if damage != nil {
			t.Fatal(damage)
		}
		if err := fault.FromEnv(); err != nil {
			t.Fatal(err)
		}
		for i := range rounds {
			if err := table.Put(fmt.Sprint(i), record{i}); err != nil {
				t.Fatal(err)
			}
			fmt.Println("said:", i)
		}
		closeStore(t, s)
		return
	}
	for _, point := range []string{"store.write", "store.written"} {
		for n := range rounds {
			path := filepath.Join(t.TempDir(), "state.db")
			cmd := exec.Command(os.Args[0], "-test.run=^TestKilledAtEveryWrite$")
			cmd.Env = append(os.Environ(), env+"="+path, fmt.Sprintf("%s=%s=%d*off->kill", fault.Env, point, n))
			if n == 0 {
				cmd.Env[len(cmd.Env)-1] = fmt.Sprintf("%s=%s=kill", fault.Env, point)
			}
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("%s %d: it lived\n%s", point, n, out)
			}
			said := -1
			for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
				if text, ok := strings.CutPrefix(lines.Text(), "said: "); ok {
					if said, err = strconv.Atoi(text); err != nil {
						t.Fatal(err)
					}
				}
			}
			s, table, damage := open(t, config(path))
			all, err := table.All()
			want := said + 1
			if point == "store.written" {
				want++ // on the disk, and not said yet
			}
			if damage != nil || err != nil || said != n-1 || len(all) != want {
				t.Errorf("%s %d: said %d, found %d records, %v, %v", point, n, said, len(all), damage, err)
			}
			closeStore(t, s)
		}
	}
}

// TestAFaultyDisk: a write that fails is not lost, whatever the point.
func TestAFaultyDisk(t *testing.T) {
	for _, point := range []string{"store.write", "store.written"} {
		path := filepath.Join(t.TempDir(), "state.db")
		s, table, changed := watched(t, path)
		if err := fault.Set(point + "=3*error(no)"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = fault.Set("") })
		if err := table.Put("a", record{1}); err != nil {
			t.Fatal(err)
		}
		until(t, changed, "trouble", troubled)
		until(t, changed, "the end of it", well)
		closeStore(t, s)
		_, table, _ = watched(t, path)
		if _, ok, err := table.Get("a"); !ok || err != nil {
			t.Errorf("%s: %v, %v", point, ok, err)
		}
	}
}

// TestCompactingFails: where the former file has its name still nothing changes, and
// writes go on; else the records stay, and reach the disk when it takes writes again.
func TestCompactingFails(t *testing.T) {
	for point, trouble := range map[string]bool{"store.write": false, "store.written": true} {
		path := filepath.Join(t.TempDir(), "state.db")
		s, table, changed := watched(t, path)
		if err := table.Put("old", record{1}); err != nil {
			t.Fatal(err)
		}
		if err := fault.Set(point + "=1*error(no)"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = fault.Set("") })
		if err := s.Compact(); err == nil {
			t.Errorf("%s: compacted", point)
		}
		if got := s.State().Trouble != nil; got != trouble {
			t.Errorf("%s: trouble %v", point, got)
		}
		if err := table.Put("new", record{2}); err != nil {
			t.Fatal(err)
		}
		if trouble {
			until(t, changed, "trouble", troubled)
			until(t, changed, "the end of it", well)
		}
		if all, err := table.All(); err != nil || len(all) != 2 {
			t.Errorf("%s: %v, %v", point, all, err)
		}
		if err := s.Compact(); err != nil {
			t.Errorf("%s: %v", point, err)
		}
		closeStore(t, s)
		_, table, _ = watched(t, path)
		if all, err := table.All(); err != nil || len(all) != 2 {
			t.Errorf("%s: the next life has %v, %v", point, all, err)
		}
	}
}

// TestCompactOnAFullDisk: without room for a second file the first one stays, and no
// trouble is reported of a disk that takes writes.
func TestCompactOnAFullDisk(t *testing.T) {
	d := disk.Small(t, "1m")
	path := filepath.Join(d.Dir, "state.db")
	s, table, _ := watched(t, path)
	if err := table.Put("old", record{1}); err != nil {
		t.Fatal(err)
	}
	d.Fill()
	if err := s.Compact(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("compacted: %v", err)
	}
	if state := s.State(); state.Trouble != nil {
		t.Errorf("trouble %v", state.Trouble)
	}
	if r, ok, err := table.Get("old"); !ok || err != nil || r.N != 1 {
		t.Errorf("%v %v %v", r, ok, err)
	}
	if _, err := os.Stat(path + ".new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half a file was left: %v", err)
	}
}

// TestKilledWhileCompacting: the file that a killed process was making, a copy of all records,
// goes when the store is opened.
func TestKilledWhileCompacting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, table, _ := open(t, config(path))
	if err := table.Put("old", record{1}); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	if err := os.WriteFile(path+".new", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, table, _ = open(t, config(path))
	defer closeStore(t, s)
	if _, err := os.Stat(path + ".new"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
	if r, ok, err := table.Get("old"); !ok || err != nil || r.N != 1 {
		t.Errorf("%v %v %v", r, ok, err)
	}
}

// TestAnotherProcessHasIt: two writers would be worse than none.
func TestAnotherProcessHasIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	s, _, _ := open(t, config(path))
	defer closeStore(t, s)
	if _, _, err := store.Open(config(path)); err == nil {
		t.Error("opened twice")
	}
}

// TestAFileWithoutChecksums is damaged: nothing proves its records.
func TestAFileWithoutChecksums(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.db")
	withoutSums(t, path, map[string]string{"a": `{"N":4}`})
	s, table, damage := open(t, config(path))
	defer closeStore(t, s)
	if _, ok, err := table.Get("a"); damage == nil || damage.Aside == "" || ok || err != nil {
		t.Errorf("%v %v %v", ok, err, damage)
	}
}
