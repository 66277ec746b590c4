// SPDX-License-Identifier: Apache-2.0

package podworker

import (
	"context"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/lru"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/rpc"
)

func execProbe(command ...string) *v1.Probe {
	return &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: command}}}
}

// TestProberRunsItsProbesAlone: a command is a probe of the container it is to run in,
// with the variables of that container; before the pods are known nothing is.
func TestProberRunsItsProbesAlone(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	paths := house.Paths{Run: filepath.Join(n.dir, "run"), State: filepath.Join(n.dir, "var")}
	ctx, cancel := context.WithCancel(context.Background())
	ended := n.house(ctx, paths)
	_, s, stop := n.process(paths)
	n.desire(web("a", command("sleep infinity"), func(p *v1.Pod) {
		c := &p.Spec.Containers[0]
		c.Env = []v1.EnvVar{{Name: "WHO", Value: "web"}}
		c.LivenessProbe, c.ReadinessProbe, c.StartupProbe = execProbe("live", "$(WHO)"), execProbe("ready"), execProbe("started")
		other := *c.DeepCopy()
		other.Name, other.LivenessProbe, other.ReadinessProbe, other.StartupProbe = "other", execProbe("live", "other"), nil, nil
		p.Spec.Containers = append(p.Spec.Containers, other)
	}))
	eventually(t, "running", func() bool { return n.running("a") && n.rt.Container("a", "other") != nil })
	id, otherID := n.rt.Container("a", "web").GetId(), n.rt.Container("a", "other").GetId()
	for _, test := range []struct {
		id      string
		command []string
	}{{id, []string{"live", "web"}}, {id, []string{"ready"}}, {id, []string{"started"}}, {otherID, []string{"live", "other"}}} {
		if err := rights(s).mayProbe(t.Context(), s.broker.Runtime(), test.id, test.command); err != nil {
			t.Errorf("%q: %v", test.command, err)
		}
	}
	for _, test := range []struct {
		name, id string
		command  []string
		want     rpc.Kind
	}{
		{"not expanded", id, []string{"live", "$(WHO)"}, rpc.Denied},
		{"another command", id, []string{"sh"}, rpc.Denied},
		{"an argument more", id, []string{"ready", "x"}, rpc.Denied},
		{"no command", id, nil, rpc.Denied},
		{"another container's", otherID, []string{"ready"}, rpc.Denied},
		{"no container", "no-such", []string{"ready"}, rpc.NotFound},
	} {
		if err := rights(s).mayProbe(t.Context(), s.broker.Runtime(), test.id, test.command); !rpc.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
	}
	stop()
	cancel()
	ended.Wait()

	_, s, stop = n.process(paths)
	defer stop()
	if err := rights(s).mayProbe(t.Context(), s.broker.Runtime(), id, []string{"ready"}); !rpc.Is(err, rpc.Unavailable) {
		t.Errorf("before the pods are known: %v, want Unavailable", err)
	}
}

func rights(s *Service) *probeRights {
	return &probeRights{pods: s.in.Pods, containers: lru.New(knownContainers)}
}
