// SPDX-License-Identifier: Apache-2.0

package kernellog

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	podA       = "/kubepods.slice/kubepods-podf9411888_a753_41f4_9520_afc45712f5b5.slice"
	containerA = podA + "/cri-containerd-85d3a7f5db9b92df4f5930b5bf062cff540084aacfc05310acc6c5cc963023ad.scope"
	podB       = "/kubepods.slice/kubepods-pod9eb0e64e_6e1a_43e4_b372_2603a3cc2941.slice"
	docker     = "/docker/a4d47fb7bbc8a2bbc172bd26085c4509364b1b7eec61439669e08e281b181a0b"
)

var here = "/guards-probe/kubepods/burstable/pod1234abcd-0000-4000-8000-0123456789ab/" + strings.Repeat("c", 64)

// texts are what kernels of several versions wrote, by the file in testdata.
var texts = map[string][]Kill{
	"3.13-docker.kmsg":         {{1216, 2411100201 * time.Microsecond, "sh", 20977, Group, docker, docker}},
	"4.4-machine.kmsg":         {{887, 337631991237 * time.Microsecond, "sh", 31357, Machine, "", ""}},
	"4.19-kubepods.kmsg":       {{30574077, 3816544225512 * time.Microsecond, "stress", 21711, Group, podB + "/docker-663f6287c450aea2f849b82a30d1409059497b5de62846a286e55971d61e2650.scope", podB}},
	"5.0-constraint-none.kmsg": {{302, 37128158 * time.Millisecond, "a.out", 9188, Group, "/test1", "/test1"}},
	"5.4-caller.kmsg":          {{19685768, 241227988581 * time.Microsecond, "agent:amservice", 10192, Machine, "/apps/in_active_bg", ""}},
	"5.10-oom-group.kmsg": {
		{4102, 993100000260 * time.Microsecond, "stress", 3804874, Group, containerA, podA},
		{4109, 993200000260 * time.Microsecond, "node", 22609, Group, podA, podA},
	},
	"6.1-machine.kmsg":    {{9901, 29924805991 * time.Microsecond, "(sd-pam)", 4503, Machine, "/user.slice/user-0.slice/user@0.service/init.scope", ""}},
	"6.18-cgroup-v1.kmsg": {{105261, 35751845743 * time.Microsecond, `a) b,pid=1,\x5c\xc3\xa9`, 31308, Group, here, here}},
}

func parse(text []byte) (kills []Kill) {
	var p Parser
	for line := range bytes.Lines(text) {
		r, err := ParseRecord(line)
		if err != nil {
			continue
		}
		if k, ok := p.Next(r); ok {
			kills = append(kills, k)
		}
	}
	return kills
}

// TestKernels: the texts of every kernel yield the kills that they report.
func TestKernels(t *testing.T) {
	files, err := filepath.Glob("testdata/*.kmsg")
	if err != nil || len(files) != len(texts) {
		t.Fatalf("%d files, %d expectations, %v", len(files), len(texts), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := parse(text), texts[filepath.Base(file)]; !slices.Equal(got, want) {
			t.Errorf("%s:\n%+v, want\n%+v", file, got, want)
		}
	}
}

// kernel makes lines of the kernel.
func kernel(lines ...string) []byte {
	var text strings.Builder
	for i, line := range lines {
		fmt.Fprintf(&text, "4,%d,%d,-;%s\n", i, i, line)
	}
	return []byte(text.String())
}

// TestStorm: when kills are many the kernel leaves the details out.
func TestStorm(t *testing.T) {
	got := parse(kernel("Out of memory: Killed process 1 (a) total-vm:1kB", "Memory cgroup out of memory: Killed process 2 (b) total-vm:1kB"))
	want := []Kill{{0, 0, "a", 1, Machine, "", ""}, {1, time.Microsecond, "b", 2, Group, "", ""}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}

// TestNoKills: lines that only look like a kill.
func TestNoKills(t *testing.T) {
	for name, text := range map[string][]byte{
		"a process wrote it":       []byte("12,1,1,-;Out of memory: Killed process 1 (a) total-vm:1kB\n"),
		"nothing was short":        kernel("Killed process 1 (a) total-vm:1kB"),
		"something else before it": kernel("x invoked oom-killer: gfp_mask", "segfault: Killed process 1 (a) total-vm:1kB"),
		"it was only chosen":       kernel("Out of memory: Kill process 1 (a) score 1 or sacrifice child"),
		"no number":                kernel("Out of memory: Killed process -1 (a) total-vm:1kB", "Out of memory: Killed process x (a) total-vm:1kB"),
		"a name that is too long":  kernel("Out of memory: Killed process 1 (" + strings.Repeat("a", 61) + ") total-vm:1kB"),
		"a property":               []byte("6,1,1,-;x\n Out of memory: Killed process 1 (a) total-vm:1kB\n"),
		"no line of the log":       []byte("Out of memory: Killed process 1 (a) total-vm:1kB\n4,x,1,-;y\n4,1;z\n"),
	} {
		if got := parse(text); len(got) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestNamesDoNotMislead: names of processes and cgroups that are made to look like the
// kernel's words do not change whose kill it is.
func TestNamesDoNotMislead(t *testing.T) {
	const own, other = "/kubepods/podA/c", "/kubepods/podB/c"
	for _, name := range []string{"a", ",task=b", ",pid=7,uid=0", ") total-vm:1", "global_oom", "(", ")"} {
		for _, sub := range []string{"", "/x,global_oom,task_memcg=" + other, "/x,task_memcg=" + other, "/x,oom_memcg=" + other, "/,task=" + name + ",pid=7,uid=0"} {
			for _, cpuset := range []string{"/", "x,global_oom,task_memcg=y", "x,oom_memcg=y,task_memcg=y"} {
				got := parse(kernel(
					"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset="+cpuset+",mems_allowed=0,oom_memcg="+own+",task_memcg="+own+sub+",task="+name+",pid=7,uid=0",
					"Memory cgroup out of memory: Killed process 7 ("+name+") total-vm:1kB, anon-rss:1kB"))
				if len(got) != 1 || got[0].Process != name || got[0].Scope != Group || got[0].Limit != own || got[0].Cgroup != own && !strings.HasPrefix(got[0].Cgroup, own+"/") {
					t.Errorf("name %q, cgroup %q, cpuset %q: %+v", name, sub, cpuset, got)
				}
			}
		}
	}
}

func FuzzParser(f *testing.F) {
	files, err := filepath.Glob("testdata/*.kmsg")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, k := range parse(text) {
			if k.PID <= 0 || k.Since < 0 || len(k.Process) > maxName || len(k.Cgroup) > maxPath || len(k.Limit) > maxPath {
				t.Errorf("out of bounds: %+v", k)
			}
			for _, said := range []string{k.Process, k.Cgroup, k.Limit} {
				if strings.ContainsFunc(said, func(r rune) bool { return r < ' ' || r > '~' }) {
					t.Errorf("not printable: %q", said)
				}
			}
		}
	})
}
