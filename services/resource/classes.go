// SPDX-License-Identifier: Apache-2.0

package resource

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/services/resource/internal/cgroup"
	"github.com/sextant-node/sextant/services/resource/internal/machine"
)

// sums are what the pods of a node request together: CPU of the Burstable ones in
// thousandths, and memory in bytes by class.
type sums struct {
	burstableMilli int64
	memory         map[v1.PodQOSClass]int64
}

// sum adds up what pods that stay hold. Memory is left out where nothing depends on it.
func (l *ledger) sum(memory bool) sums {
	s := sums{memory: map[v1.PodQOSClass]int64{}}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.held {
		if h.Releasing {
			continue
		}
		s.burstableMilli += h.burstableMilli
		if memory {
			requests := pod.Requests(h.pod)
			s.memory[pod.QOS(h.pod)] += requests.Memory().Value()
		}
	}
	return s
}

// classValues are what kubepods and the classes get by what their pods request; allocatable
// is what all pods may use of memory, in bytes.
func (now *settings) classValues(s sums, allocatable int64) (kubepods, burstable, bestEffort cgroup.Values) {
	burstable.CPUShares = new(pod.MilliCPUToShares(s.burstableMilli))
	if part, ok := now.kept(); ok {
		left := allocatable - int64(float64(s.memory[v1.PodQOSGuaranteed])*part)
		rest := left - int64(float64(s.memory[v1.PodQOSBurstable])*part)
		burstable.Memory, bestEffort.Memory = &left, &rest
	}
	if now.protects() {
		// What a pod is protected by, its parents have to have too (cgroup v2, memory.min).
		all := s.memory[v1.PodQOSGuaranteed] + s.memory[v1.PodQOSBurstable]
		kubepods.Unified = now.protection(v1.PodQOSGuaranteed, all)
		delete(kubepods.Unified, "memory.low")
		burstable.Unified = now.protection(v1.PodQOSBurstable, s.memory[v1.PodQOSBurstable])
		delete(burstable.Unified, "memory.min")
	}
	return kubepods, burstable, bestEffort
}

// ensureClasses gives kubepods and the classes what their pods come to.
func (t *tree) ensureClasses(now *settings) error {
	if !now.qos() {
		return nil
	}
	t.classes.Lock()
	defer t.classes.Unlock()
	reserved, err := machine.Reserved(now.capacity, &now.conf.Kubelet, nil)
	if err != nil {
		return err
	}
	_, reserves := now.kept()
	sums, allocatable := t.ledger.sum(reserves || now.protects()), machine.Less(now.capacity, reserved)
	kubepods, burstable, bestEffort := now.classValues(sums, allocatable.Memory().Value())
	if kubepods.Unified != nil {
		if err := t.of(now.driver).Ensure(pod.KubepodsCgroup(now.root), kubepods); err != nil {
			return err
		}
	}
	if err := t.limit(now, v1.PodQOSBurstable, burstable); err != nil || bestEffort.Memory == nil {
		return err
	}
	return t.limit(now, v1.PodQOSBestEffort, bestEffort)
}

// limit gives a class its values. A limit of memory that the kernel refuses is set to what
// the class uses now.
func (t *tree) limit(now *settings, class v1.PodQOSClass, values cgroup.Values) error {
	cgroups, name := t.of(now.driver), pod.QOSCgroup(now.root, class)
	err := cgroups.Ensure(name, values)
	if err == nil || values.Memory == nil {
		return err
	}
	usage, failed := cgroups.MemoryUsage(name)
	if failed != nil {
		return fmt.Errorf("%w; what it uses is not known: %w", err, failed)
	}
	values.Memory = new(max(*values.Memory, usage))
	return cgroups.Ensure(name, values)
}

// change is ensureClasses after a pod has come, gone or changed, where classes depend on
// it; an error can only be logged.
func (t *tree) change(now *settings, h *held) {
	_, reserves := now.kept()
	if h.burstableMilli == 0 && !reserves && !now.protects() {
		return
	}
	if err := t.ensureClasses(now); err != nil {
		t.ledger.log.Error("cgroups of the classes", "error", err.Error())
	}
}
