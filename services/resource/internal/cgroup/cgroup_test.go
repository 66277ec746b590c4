// SPDX-License-Identifier: Apache-2.0

package cgroup_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
	"github.com/sextant-node/sextant/test/cgrouptest"
)

var tree = cgroup.Tree{Driver: pod.Cgroupfs}

func ensure(t *testing.T, name pod.CgroupName, values cgroup.Values) {
	t.Helper()
	if err := tree.Ensure(name, values); err != nil {
		t.Fatal(err)
	}
}

// parents makes the cgroups above a pod's.
func parents(root pod.CgroupName) error {
	for _, name := range []pod.CgroupName{root, pod.KubepodsCgroup(root), pod.QOSCgroup(root, v1.PodQOSBurstable), pod.QOSCgroup(root, v1.PodQOSBestEffort)} {
		if err := tree.Ensure(name, cgroup.Values{}); err != nil {
			return err
		}
	}
	return nil
}

func burstable() *v1.Pod {
	p := &v1.Pod{}
	p.UID = "8a9a1c1e-0000-4000-8000-000000000001"
	p.Spec.Containers = []v1.Container{{Name: "c", Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{"cpu": resource.MustParse("500m"), "memory": resource.MustParse("16Mi")},
		Limits:   v1.ResourceList{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("32Mi")},
	}}}
	return p
}

func valuesOf(p *v1.Pod, pids int64) cgroup.Values {
	return cgroup.Values{CgroupResources: pod.PodCgroupResources(p, true, 100*time.Millisecond), PIDs: &pids}
}

// TestAPodsValues: what is set is what the kernel has (kubelet-style names and
// conversions, cgroups(7)).
func TestAPodsValues(t *testing.T) {
	root, p := cgrouptest.Root(t), burstable()
	if err := parents(root); err != nil {
		t.Fatal(err)
	}
	name := pod.PodCgroupOf(root, pod.QOS(p), p.UID)
	if tree.Exists(name) {
		t.Error("exists before it was made")
	}
	for range 2 {
		ensure(t, name, valuesOf(p, 77))
	}
	if !tree.Exists(name) {
		t.Error("does not exist")
	}
	for what, test := range map[string]struct{ v1, v2, want1, want2 string }{
		"shares": {"cpu/cpu.shares", "cpu.weight", "512", fmt.Sprint(pod.SharesToWeight(512))},
		"quota":  {"cpu/cpu.cfs_quota_us", "cpu.max", "150000", "150000 100000"},
		"period": {"cpu/cpu.cfs_period_us", "cpu.max", "100000", "150000 100000"},
		"memory": {"memory/memory.limit_in_bytes", "memory.max", "33554432", "33554432"},
		"pids":   {"pids/pids.max", "pids.max", "77", "77"},
	} {
		want := test.want1
		if cgrouptest.V2() {
			want = test.want2
		}
		if got := cgrouptest.Value(t, name, test.v1, test.v2); got != want {
			t.Errorf("%s is %s, want %s", what, got, want)
		}
	}
	// Other values replace them.
	limits := p.Spec.Containers[0].Resources.Limits
	limits["memory"] = resource.MustParse("64Mi")
	ensure(t, name, valuesOf(p, 78))
	if got := cgrouptest.Value(t, name, "memory/memory.limit_in_bytes", "memory.max"); got != "67108864" {
		t.Errorf("memory is %s after a change", got)
	}
	for range 2 {
		if err := tree.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	if cgrouptest.Exists(t, name) {
		t.Error("left over after removal")
	}
}

func TestUnlimited(t *testing.T) {
	root := cgrouptest.Root(t)
	bound := int64(64 << 20)
	ensure(t, root, cgroup.Values{CgroupResources: pod.CgroupResources{Memory: &bound}})
	ensure(t, root, cgroup.Values{CgroupResources: pod.CgroupResources{Memory: new(int64(-1))}, PIDs: new(int64(-1))})
	if got := cgrouptest.Value(t, root, "memory/memory.limit_in_bytes", "memory.max"); got == "67108864" {
		t.Error("the bound is still there")
	}
	if got := cgrouptest.Value(t, root, "pids/pids.max", "pids.max"); got != "max" {
		t.Errorf("pids %s", got)
	}
}

func TestHugePages(t *testing.T) {
	// With or without the controller a pod that asks for huge pages gets its
	// cgroup.
	root, p := cgrouptest.Root(t), burstable()
	if err := parents(root); err != nil {
		t.Fatal(err)
	}
	p.Spec.Containers[0].Resources.Limits["hugepages-2Mi"] = resource.MustParse("4Mi")
	p.Spec.Containers[0].Resources.Requests["hugepages-2Mi"] = resource.MustParse("4Mi")
	ensure(t, pod.PodCgroupOf(root, pod.QOS(p), p.UID), valuesOf(p, 10))
}

func TestABusyCgroupIsNotRemoved(t *testing.T) {
	root := cgrouptest.Root(t)
	child := root.Child("child")
	ensure(t, root, cgroup.Values{})
	ensure(t, child, cgroup.Values{})
	leave := cgrouptest.Occupy(t, child)
	err := tree.Remove(root)
	if err == nil || !strings.Contains(err.Error(), "cgroup "+root.Path(pod.Cgroupfs)+" still holds 1 processes") {
		t.Errorf("a busy cgroup: %v", err)
	}
	if !cgrouptest.Exists(t, child) {
		t.Error("removed although busy")
	}
	leave()
	if err := tree.Remove(root); err != nil {
		t.Errorf("an empty one: %v", err)
	}
	if cgrouptest.Exists(t, root) {
		t.Error("left over")
	}
}

func TestErrorsNameTheCgroup(t *testing.T) {
	root := cgrouptest.Root(t)
	ensure(t, root, cgroup.Values{})
	tooMuch := int64(-5)
	err := tree.Ensure(root, cgroup.Values{CgroupResources: pod.CgroupResources{Memory: &tooMuch}})
	if err == nil || !strings.Contains(err.Error(), root.Path(pod.Cgroupfs)) {
		t.Errorf("a bound that cannot be: %v", err)
	}
}

const unprivileged = "SEXTANT_TEST_CGROUP_ROOT"

func TestMain(m *testing.M) {
	if root := os.Getenv(unprivileged); root != "" {
		if err := lifeOfAPod(pod.CgroupName{root}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// lifeOfAPod is what the process without root's rights does.
func lifeOfAPod(root pod.CgroupName) error {
	p := burstable()
	name := pod.PodCgroupOf(root, pod.QOS(p), p.UID)
	if err := errors.Join(parents(root), tree.Ensure(name, valuesOf(p, 10))); err != nil {
		return err
	}
	if !tree.Exists(name) {
		return errors.New("not made")
	}
	if err := errors.Join(tree.Remove(name), tree.Remove(root)); err != nil {
		return err
	}
	if tree.Exists(root) {
		return errors.New("not removed")
	}
	return nil
}

// TestWithoutRootsRights: the capability of the owner table (docs/architecture.md)
// is enough, and without it nothing works, so the test means something.
func TestWithoutRootsRights(t *testing.T) {
	as := func(capabilities ...uintptr) error {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), unprivileged+"="+cgrouptest.Root(t)[0])
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 64206, Gid: 64206}, AmbientCaps: capabilities}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	}
	if err := as(unix.CAP_DAC_OVERRIDE); err != nil {
		t.Errorf("with CAP_DAC_OVERRIDE: %v", err)
	}
	if err := as(); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("without: %v", err)
	}
}
