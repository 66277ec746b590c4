// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// need is a ResourceClaim that a pod uses.
type need struct {
	// entry is the name in pod.spec.resourceClaims; empty for the claim of extended
	// resources (KEP-5004).
	entry string
	// claim is the name of the ResourceClaim in the pod's namespace.
	claim string
	// generated claims must have the pod as their owner.
	generated bool
}

// Uses reports whether a pod uses resource claims.
func Uses(p *v1.Pod) bool {
	return len(p.Spec.ResourceClaims) > 0 || p.Status.ExtendedResourceClaimStatus != nil
}

// needsOf lists the claims a pod uses. The error, in the kubelet's words, is of the first
// claim that has no name yet.
func needsOf(p *v1.Pod) ([]need, error) {
	var needs []need
	for i := range p.Spec.ResourceClaims {
		n, err := needOf(p, &p.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if n.claim != "" { // a template may come to no claim
			needs = append(needs, n)
		}
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil && s.ResourceClaimName != "" {
		needs = append(needs, need{claim: s.ResourceClaimName})
	}
	return needs, nil
}

func needOf(p *v1.Pod, c *v1.PodResourceClaim) (need, error) {
	switch {
	case c.ResourceClaimName != nil:
		return need{entry: c.Name, claim: *c.ResourceClaimName}, nil
	case c.ResourceClaimTemplateName == nil:
		return need{}, fmt.Errorf(`pod "%s/%s", spec.resourceClaim %q: none of the supported fields are set`, p.Namespace, p.Name, c.Name)
	}
	for _, s := range p.Status.ResourceClaimStatuses {
		if s.Name == c.Name {
			return need{entry: c.Name, claim: ptr.Deref(s.ResourceClaimName, ""), generated: true}, nil
		}
	}
	return need{}, fmt.Errorf(`pod "%s/%s": ResourceClaim not created yet`, p.Namespace, p.Name)
}

// Object is what the node knows of a ResourceClaim at the API server.
type Object struct {
	// Claim is nil while it is not known, or when it is absent.
	Claim *resourceapi.ResourceClaim
	// Absent: the API server said that it does not exist.
	Absent bool
	// Err is why it could not be read, or empty.
	Err string
}

// errUnread is the error of a claim that was not read yet: no fault of anybody.
var errUnread = errors.New("not read from the API server yet")

// usable judges whether a pod may have a claim prepared, and names the drivers that
// allocated devices for it, sorted. Errors have the kubelet's words.
func usable(p *v1.Pod, n need, o Object) (drivers []string, err error) {
	claim := o.Claim
	switch {
	case o.Absent:
		return nil, fmt.Errorf("fetch ResourceClaim %s: %w", n.claim, apierrors.NewNotFound(resourceapi.Resource("resourceclaims"), n.claim))
	case claim == nil && o.Err != "":
		return nil, fmt.Errorf("fetch ResourceClaim %s: %s", n.claim, o.Err)
	case claim == nil:
		return nil, fmt.Errorf("fetch ResourceClaim %s: %w", n.claim, errUnread)
	case n.generated && !metav1.IsControlledBy(claim, p):
		return nil, fmt.Errorf("ResourceClaim %s/%s was not created for Pod %s/%s (Pod is not owner)", claim.Namespace, claim.Name, p.Namespace, p.Name)
	case !slices.ContainsFunc(claim.Status.ReservedFor, func(r resourceapi.ResourceClaimConsumerReference) bool { return r.UID == p.UID }):
		return nil, fmt.Errorf("pod %s (%s) is not allowed to use ResourceClaim %s (%s)", p.Name, p.UID, n.claim, claim.UID)
	case claim.Status.Allocation == nil:
		return nil, fmt.Errorf("ResourceClaim %s: not allocated", claim.Name)
	}
	for _, result := range claim.Status.Allocation.Devices.Results {
		drivers = append(drivers, result.Driver)
	}
	slices.Sort(drivers)
	return slices.Compact(drivers), nil
}

// requests lists, for a container, the requests of each claim whose devices it gets; an
// empty request stands for all devices of the claim.
func requests(p *v1.Pod, c *v1.Container, needs []need) map[string][]string {
	all := map[string][]string{}
	for _, n := range needs {
		for _, wants := range c.Resources.Claims {
			if n.entry != "" && wants.Name == n.entry {
				all[n.claim] = append(all[n.claim], wants.Request)
			}
		}
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil {
		for _, m := range s.RequestMappings {
			amount := c.Resources.Requests[v1.ResourceName(m.ResourceName)]
			if m.ContainerName == c.Name && !amount.IsZero() {
				all[s.ResourceClaimName] = append(all[s.ResourceClaimName], m.RequestName)
			}
		}
	}
	return all
}

// serves reports whether a device was allocated for a request. Drivers name the request
// of a prioritized list without its subrequest (KEP-4816).
func (d *Device) serves(request string) bool {
	base, _, _ := strings.Cut(request, "/")
	return request == "" || len(d.RequestNames) == 0 || slices.Contains(d.RequestNames, request) || slices.Contains(d.RequestNames, base)
}

// claimsOf are the claims that a container uses, each once.
func claimsOf(p *v1.Pod, c *v1.Container, claims func(name string) *Claim) (all []*Claim) {
	needs, err := needsOf(p)
	if err != nil {
		return nil
	}
	wanted := requests(p, c, needs)
	for _, n := range needs {
		if claim := claims(n.claim); claim != nil && len(wanted[n.claim]) > 0 {
			all = append(all, claim)
		}
		delete(wanted, n.claim) // two entries may name one claim
	}
	return all
}

// cdiDevices names the CDI devices of a container, each once: by driver, and then in the
// driver's order.
func cdiDevices(p *v1.Pod, c *v1.Container, claims func(name string) *Claim) []string {
	needs, err := needsOf(p)
	if err != nil {
		return nil
	}
	var ids []string
	wanted := requests(p, c, needs)
	for _, n := range needs {
		claim := claims(n.claim)
		if claim == nil {
			continue
		}
		for _, request := range wanted[n.claim] {
			for _, driver := range claim.drivers() {
				for _, d := range claim.Drivers[driver].Devices {
					if d.serves(request) {
						ids = append(ids, d.CDIDeviceIDs...)
					}
				}
			}
		}
		delete(wanted, n.claim) // two entries may name one claim
	}
	return unique(ids)
}

// DeviceHealth is how a device is that a container has by a claim.
type DeviceHealth struct {
	// Resource is claim:NAME, or claim:NAME/REQUEST for the devices of one request, with the
	// pod's name of the claim (k8s.io/api/core/v1, ResourceStatus).
	Resource string
	// ID is the device's first CDI name, else DRIVER/POOL/DEVICE.
	ID string
	Health
}

// healthOf are the devices of a container's claims, each once for each entry, with what of
// says of them.
func healthOf(p *v1.Pod, c *v1.Container, claims func(name string) *Claim, of func(driver, pool, device string) Health) (all []DeviceHealth) {
	needs, err := needsOf(p)
	if err != nil {
		return nil
	}
	for _, wants := range c.Resources.Claims {
		resource := "claim:" + wants.Name
		if wants.Request != "" {
			resource += "/" + wants.Request
		}
		at := slices.IndexFunc(needs, func(n need) bool { return n.entry != "" && n.entry == wants.Name })
		if at < 0 {
			continue
		}
		claim := claims(needs[at].claim)
		if claim == nil {
			continue
		}
		seen := map[string]bool{}
		for _, driver := range claim.drivers() {
			for _, d := range claim.Drivers[driver].Devices {
				id := driver + "/" + d.PoolName + "/" + d.DeviceName
				if len(d.CDIDeviceIDs) > 0 {
					id = d.CDIDeviceIDs[0]
				}
				if d.serves(wants.Request) && !seen[id] {
					seen[id] = true
					all = append(all, DeviceHealth{Resource: resource, ID: id, Health: of(driver, d.PoolName, d.DeviceName)})
				}
			}
		}
	}
	return all
}

func unique(ids []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(ids, func(id string) bool {
		before := seen[id]
		seen[id] = true
		return before
	})
}
