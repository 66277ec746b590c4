// SPDX-License-Identifier: Apache-2.0

package actuate

import (
	"context"
	"fmt"
	"os"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
	eventv1 "github.com/sextant-node/sextant/proto/sextant/event/v1"
	"github.com/sextant-node/sextant/services/podworker/internal/netfile"
)

// dns is a pod's DNS configuration. The node's resolv.conf is read each time:
// it changes when the node moves to another network.
func (a *requests) dns(cfg *kubeletconfig.Config, p *v1.Pod) (*runtimeapi.DNSConfig, []netfile.Warning, error) {
	in := netfile.DNSInput{
		ClusterDNS: cfg.Kubelet.ClusterDNS, ClusterDomain: cfg.Kubelet.ClusterDomain,
		NodeIPs: a.deps.Lookups.Node().IPs,
	}
	var limits []netfile.Warning
	if file := ptr.Deref(cfg.Kubelet.ResolverConfig, ""); file != "" && p.Spec.DNSPolicy != v1.DNSNone {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, fmt.Errorf("resolvConf %s: %w", file, err)
		}
		// What can be read of a damaged file is used, as by every resolver.
		resolv, err := netfile.ParseResolv(content)
		if err != nil {
			a.log.Warn("resolv.conf has errors", "file", file, "error", err.Error())
		}
		in.Resolv = &resolv
		if message := netfile.CheckResolv(file, resolv, cfg.Kubelet.ClusterDomain); message != "" {
			limits = append(limits, netfile.Warning{Reason: "CheckLimitsForResolvConf", Node: true, NodeMessage: message})
		}
	}
	config, warnings := netfile.DNS(p, in)
	return config, append(limits, warnings...), nil
}

func (a *requests) tellDNS(ctx context.Context, p *v1.Pod, warnings []netfile.Warning) {
	for _, w := range warnings {
		if w.Message != "" {
			a.event(ctx, p, "", v1.EventTypeWarning, w.Reason, w.Message)
		}
		if !w.Node {
			continue
		}
		e := newEvent(p, "", v1.EventTypeWarning, w.Reason, w.NodeMessage, a.deps.Clock.Now())
		name := a.deps.Lookups.Node().Name
		e.Object = &eventv1.ObjectReference{ApiVersion: "v1", Kind: "Node", Name: name, Uid: name}
		if err := a.deps.Events.Emit(ctx, e); err != nil {
			a.log.WarnContext(ctx, "event lost", "reason", w.Reason, "error", err.Error())
		}
	}
}
