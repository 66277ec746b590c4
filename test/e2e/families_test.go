// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sextant-node/sextant/test/e2e/harness"
)

// TestFamilies: nodes with addresses of both IP families, either first, and of IPv6 alone.
// Beside the reference kubelet the addresses of node and pods, what pods are told of them,
// probes and the way of kubectl logs to the node are the same.
func TestFamilies(t *testing.T) {
	cp := harness.StartControlPlane(t)
	seen := observe(t, cp)
	for _, families := range [][]corev1.IPFamily{
		{corev1.IPv4Protocol, corev1.IPv6Protocol}, {corev1.IPv6Protocol, corev1.IPv4Protocol}, {corev1.IPv6Protocol},
	} {
		t.Run(fmt.Sprint(families), func(t *testing.T) {
			o := harness.NodeOptions{ControlPlane: cp, Families: families}
			r, s := harness.StartReference(t, o), harness.StartNode(t, o)
			reference := &addressed{newAgent(t, &r.Place, cp, seen), families}
			sextant := &addressed{newAgent(t, &s.Place, cp, seen), families}
			want, got := reference.look(), sextant.look()
			if t.Log(want); got != want {
				t.Errorf("Sextant:\n%s\nthe kubelet:\n%s", got, want)
			}
		})
	}
}

// addressed is a node whose addresses are of some families.
type addressed struct {
	*agent
	families []corev1.IPFamily
}

// look says what there is of addresses, each by what it is of.
func (a *addressed) look() string {
	a.Helper()
	a.make(a.pod("plain"))
	host := a.pod("host")
	host.Spec.HostNetwork = true
	host.Spec.Containers[0].Args = []string{"--http=" + net.JoinHostPort(a.place.IP, "8080")} // others listen, too
	a.make(host)
	plain, host := a.ready("plain"), a.ready("host")
	if got := familiesOf(plain.Status.PodIPs); !slices.Equal(got, a.families) {
		a.Errorf("the pod of a node of %v has addresses of %v", a.families, got)
	}
	names := []string{a.place.Name, "NODE", a.ns, "NS"}
	for _, ip := range a.place.IPs {
		names = append(names, ip, "NODE-"+string(familyOf(ip)))
	}
	for _, ip := range plain.Status.PodIPs {
		names = append(names, ip.IP, "POD-"+string(familyOf(ip.IP)))
	}
	var text strings.Builder
	harness.Eventually(a, usual, "the node's addresses", func(context.Context) error {
		if n := a.seen.node(a.place.Name); n != nil && len(n.Status.Addresses) > 0 {
			fmt.Fprintf(&text, "node: %v\n", n.Status.Addresses)
			return nil
		}
		return errors.New("none yet")
	})
	for _, p := range []*corev1.Pod{plain, host} {
		fmt.Fprintf(&text, "%s: pod %s, of all %v; host %s, of all %v\n", p.Name, p.Status.PodIP, p.Status.PodIPs, p.Status.HostIP, p.Status.HostIPs)
		for _, path := range []string{"/env", "/file?path=/etc/hosts"} {
			fmt.Fprintf(&text, "%s%s:\n%s\n", p.Name, path, a.told(p, path))
		}
	}
	fmt.Fprintf(&text, "has logs: %t\n", a.logs(plain) != "")
	return strings.NewReplacer(names...).Replace(text.String())
}

// pod is told its addresses, and probed at the first.
func (a *addressed) pod(name string) *corev1.Pod {
	p := a.agent.pod(name)
	c := &p.Spec.Containers[0]
	c.ReadinessProbe = &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/healthz", Port: intstr.FromInt32(8080)}}, PeriodSeconds: 1,
	}
	for _, field := range []string{"podIP", "podIPs", "hostIP", "hostIPs"} {
		c.Env = append(c.Env, corev1.EnvVar{Name: "IS_" + field, ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status." + field},
		}})
	}
	return p
}

// told is what the program in a pod answers, of the variables only those about addresses.
func (a *addressed) told(p *corev1.Pod, path string) string {
	a.Helper()
	body := a.ask(p, path)
	var all map[string]string
	if json.Unmarshal([]byte(body), &all) != nil {
		return body
	}
	var about []string
	for name, value := range all {
		if strings.HasPrefix(name, "IS_") {
			about = append(about, name+"="+value)
		}
	}
	slices.Sort(about)
	return strings.Join(about, "\n")
}

// logs are read as kubectl does: the API server connects to the node.
func (a *addressed) logs(p *corev1.Pod) string {
	a.Helper()
	b, err := a.cp.Admin.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{}).DoRaw(a.Context())
	if err != nil {
		a.Error(err)
	}
	return string(b)
}

func familyOf(ip string) corev1.IPFamily {
	if addr, err := netip.ParseAddr(ip); err == nil && addr.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

func familiesOf(ips []corev1.PodIP) (all []corev1.IPFamily) {
	for _, ip := range ips {
		all = append(all, familyOf(ip.IP))
	}
	return all
}
