// SPDX-License-Identifier: Apache-2.0

package admit

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/pkg/house"
	"github.com/sextant-node/sextant/pkg/pod"
)

// SharedUser says which containers of a pod run as the user of a node service, by the
// user IDs of its specification (v1.PodSecurityContext.RunAsUser); that of an image is
// not known here. Such a container shares the service's limits of processes and of
// inotify, and with hostPID it can send it signals. A kubelet, which is root, has no
// such rule: the text is a warning for people, and empty where there is nothing to
// say, as for a pod in a user namespace.
func SharedUser(p *v1.Pod, services house.Identities) string {
	if p.Spec.HostUsers != nil && !*p.Spec.HostUsers {
		return ""
	}
	owners := map[int64][]string{}
	for service, uid := range services {
		if uid != 0 {
			owners[int64(uid)] = append(owners[int64(uid)], string(service))
		}
	}
	containers := map[int64][]string{}
	var users []int64
	for _, c := range pod.Containers(p) {
		uid := runAsUser(p, c)
		if uid == nil || owners[*uid] == nil {
			continue
		}
		if containers[*uid] == nil {
			users = append(users, *uid)
		}
		containers[*uid] = append(containers[*uid], c.Name)
	}
	var said []string
	for _, uid := range users {
		slices.Sort(owners[uid])
		said = append(said, fmt.Sprintf("containers [%s] run as user %d, which is that of the node's %s", named(containers[uid]), uid, strings.Join(owners[uid], ", ")))
	}
	if len(said) == 0 {
		return ""
	}
	return "In this pod " + strings.Join(said, "; ") + ": they share its limits. Another runAsUser, or hostUsers: false, separates them."
}

func runAsUser(p *v1.Pod, c *v1.Container) *int64 {
	if s := c.SecurityContext; s != nil && s.RunAsUser != nil {
		return s.RunAsUser
	}
	if s := p.Spec.SecurityContext; s != nil {
		return s.RunAsUser
	}
	return nil
}

// mostNamed bounds the names in a text.
const mostNamed = 10

func named(names []string) string {
	if more := len(names) - mostNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNamed], " "), more)
	}
	return strings.Join(names, " ")
}
