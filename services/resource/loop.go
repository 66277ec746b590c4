package resource

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/kubeconf"
	"github.com/sextant-node/sextant/pkg/pod"
	resourcev1 "github.com/sextant-node/sextant/proto/sextant/resource/v1"
	"github.com/sextant-node/sextant/services/resource/internal/machine"
	"github.com/sextant-node/sextant/services/resource/internal/pressure"
)

// period of measuring (the kubelet's eviction monitor: 10 s).
const period = 10 * time.Second

// loop keeps the node's item true, makes sure of the cgroups, and carries
// releases out.
func (s *Service) loop(ctx context.Context) error {
	beat := s.kit.Heart("resources", time.Minute)
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		beat()
		err := s.settle(ctx)
		s.mu.Lock()
		if s.waiting = ""; err != nil {
			s.waiting = err.Error()
		}
		s.mu.Unlock()
		if err != nil {
			s.kit.Waiting(err.Error())
		} else {
			s.kit.Serving()
		}
		s.releaseAll(ctx)
		s.resizeAgain(ctx)
		select {
		case <-ctx.Done():
			return s.file.Close()
		case <-s.wake:
		case <-tick.C:
		}
	}
}

// settle takes the configuration and the runtime's word in, and publishes what
// the node has. A change of the configuration makes sure of all cgroups again.
func (s *Service) settle(ctx context.Context) error {
	conf, ok := s.kubelet.Get("kubelet")
	if !ok {
		return errors.New("config.kubelet")
	}
	driver, err := s.driver(conf)
	if err != nil {
		return err
	}
	disk, err := machine.DiskOf(s.cfg.RootDir)
	if err != nil {
		return err
	}
	next, err := settingsOf(conf, driver, s.facts, disk)
	if err != nil {
		return err
	}
	s.mu.Lock()
	former := s.settings
	s.mu.Unlock()
	if former == nil || former.conf != conf || former.driver != driver {
		if err := s.ensureTree(ctx, next); err != nil {
			return err
		}
	}
	s.mu.Lock()
	s.settings = next
	s.mu.Unlock()
	return s.publishNode(ctx, next, disk)
}

// driver is the runtime's where it says (KEP-4033), else the configuration's.
func (s *Service) driver(conf *kubeconf.Config) (pod.CgroupDriver, error) {
	state, ok := s.runtime.Get("runtime")
	if !ok || state.GetSince() == nil || state.GetStatus() == nil {
		return "", fmt.Errorf("pleg.runtime: the runtime has not answered yet")
	}
	switch state.GetCgroupDriver() {
	case string(pod.Systemd):
		return pod.Systemd, nil
	case string(pod.Cgroupfs):
		return pod.Cgroupfs, nil
	}
	if conf.Kubelet.CgroupDriver == string(pod.Systemd) {
		return pod.Systemd, nil
	}
	return pod.Cgroupfs, nil
}

func settingsOf(conf *kubeconf.Config, driver pod.CgroupDriver, facts *machine.Facts, disk machine.Disk) (*settings, error) {
	root, err := pod.ParseCgroupRoot(conf.CgroupRoot())
	if err != nil {
		return nil, err
	}
	capacity := machine.Capacity(facts, disk, &conf.Kubelet)
	kubelet := &conf.Kubelet
	if conf.Node.IgnoreHardEvictionInAllocatable {
		kubelet = kubelet.DeepCopy()
		kubelet.EvictionHard = nil
	}
	reserved, err := machine.Reserved(capacity, kubelet)
	if err != nil {
		return nil, err
	}
	sysctls, err := pod.NewSysctlAllowlist(append(pod.SafeSysctls(facts.Kernel), conf.Kubelet.AllowedUnsafeSysctls...)...)
	if err != nil {
		return nil, fmt.Errorf("allowedUnsafeSysctls: %w", err)
	}
	return &settings{
		conf: conf, driver: driver, root: root, sysctls: sysctls,
		capacity: capacity, allocatable: machine.Allocatable(capacity, reserved),
	}, nil
}

func (s *Service) publishNode(ctx context.Context, now *settings, disk machine.Disk) error {
	item := &resourcev1.NodeResources{
		Capacity: texts(now.capacity), Allocatable: texts(now.allocatable),
		MachineId: s.facts.MachineID, SystemUuid: s.facts.SystemUUID, BootId: s.facts.BootID,
		KernelVersion: s.facts.Kernel, OsImage: s.facts.OSImage,
		OperatingSystem: s.facts.OperatingSystem, Architecture: s.facts.Architecture,
		CgroupVersion: s.facts.CgroupVersion, CgroupDriver: string(now.driver), SwapCapacityBytes: s.facts.SwapBytes,
		NodeObjectKnown: s.nodeObject(now.conf.Node.Name) != nil,
	}
	signals, err := s.measure(now, disk)
	if err != nil {
		s.kit.Log.Warn("node not measured", "error", err.Error())
	}
	s.mu.Lock()
	s.pressure = pressure.Evaluate(s.pressure, signals, now.conf.Kubelet.EvictionPressureTransitionPeriod.Duration, s.now())
	item.Memory, item.Disk, item.Pid = wirePressure(s.pressure[pressure.Memory]), wirePressure(s.pressure[pressure.Disk]), wirePressure(s.pressure[pressure.PID])
	s.mu.Unlock()
	if _, err := s.node.Set(ctx, "node", item); err != nil {
		return err
	}
	s.node.SetComplete(ctx, true)
	return nil
}

func wirePressure(state pressure.State) *resourcev1.Pressure {
	return &resourcev1.Pressure{UnderPressure: state.Under, Since: timestamppb.New(state.Since), Message: state.Message}
}

func texts(list v1.ResourceList) map[string]string {
	all := make(map[string]string, len(list))
	for name, q := range list {
		all[string(name)] = q.String()
	}
	return all
}

// measure reads the signals the configuration has thresholds for. A soft one
// counts at once: its grace is for evicting, not for the node's condition.
func (s *Service) measure(now *settings, disk machine.Disk) ([]pressure.Signal, error) {
	memory, err := s.host.Memory()
	if err != nil {
		return nil, err
	}
	most, processes, err := s.host.Processes()
	if err != nil {
		return nil, err
	}
	available := map[string]struct {
		condition   pressure.Condition
		have, whole int64
	}{
		"memory.available":  {pressure.Memory, memory["MemAvailable"], memory["MemTotal"]},
		"nodefs.available":  {pressure.Disk, disk.Available, disk.Bytes},
		"nodefs.inodesFree": {pressure.Disk, disk.InodesFree, disk.Inodes},
		"pid.available":     {pressure.PID, most - processes, most},
	}
	var signals []pressure.Signal
	for field, thresholds := range map[string]map[string]string{"evictionHard": now.conf.Kubelet.EvictionHard, "evictionSoft": now.conf.Kubelet.EvictionSoft} {
		for name, text := range thresholds {
			m, ok := available[name]
			if !ok || m.whole == 0 {
				continue
			}
			threshold, err := machine.Threshold(text, m.whole)
			if err != nil {
				return nil, fmt.Errorf("%s[%s]: %w", field, name, err)
			}
			signals = append(signals, pressure.Signal{Name: name, Condition: m.condition, Available: m.have, Threshold: threshold})
		}
	}
	return signals, nil
}
