// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"cmp"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
)

// SetDefaults sets on a pod what the API server would set.
func SetDefaults(p *v1.Pod) {
	spec := &p.Spec
	lists := [][]v1.Container{spec.InitContainers, spec.Containers}
	for _, list := range lists {
		for i := range list {
			requestLimits(&list[i].Resources)
		}
	}
	podLevel(p)
	setDefault(&spec.EnableServiceLinks, v1.DefaultEnableServiceLinks)
	if spec.HostNetwork {
		hostPorts(lists)
	}
	fill(&spec.DNSPolicy, v1.DNSClusterFirst)
	fill(&spec.RestartPolicy, v1.RestartPolicyAlways)
	fill(&spec.SchedulerName, v1.DefaultSchedulerName)
	if spec.SecurityContext == nil {
		spec.SecurityContext = &v1.PodSecurityContext{}
	}
	setDefault(&spec.TerminationGracePeriodSeconds, v1.DefaultTerminationGracePeriodSeconds)
	if *spec.TerminationGracePeriodSeconds < 0 {
		spec.TerminationGracePeriodSeconds = new(int64(1))
	}
	fill(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	for i := range spec.Volumes {
		volume(&spec.Volumes[i])
	}
	for _, list := range lists {
		for i := range list {
			container(&list[i])
		}
	}
	for i := range spec.EphemeralContainers {
		container((*v1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	round(spec.Overhead)
	if spec.Resources != nil {
		round(spec.Resources.Limits)
		round(spec.Resources.Requests)
	}
}

// requestLimits makes a limit without a request a request too.
func requestLimits(r *v1.ResourceRequirements) {
	if r.Limits == nil {
		return
	}
	if r.Requests == nil {
		r.Requests = v1.ResourceList{}
	}
	for name, q := range r.Limits {
		if _, ok := r.Requests[name]; !ok {
			r.Requests[name] = q.DeepCopy()
		}
	}
}

// podLevel completes pod-level resources from the containers (KEP-2837).
func podLevel(p *v1.Pod) {
	r := p.Spec.Resources
	if r == nil {
		return
	}
	none := resourcehelper.PodResourcesOptions{}
	if len(r.Limits) > 0 || len(r.Requests) > 0 {
		for name, q := range resourcehelper.AggregateContainerLimits(p, none) {
			_, requested := r.Requests[name]
			_, limited := r.Limits[name]
			if isHugePages(name) && !requested && !limited {
				if r.Limits == nil {
					r.Limits = v1.ResourceList{}
				}
				r.Limits[name] = q.DeepCopy()
			}
		}
	}
	if len(r.Limits) == 0 {
		return
	}
	add := func(name v1.ResourceName, list v1.ResourceList) {
		if _, ok := r.Requests[name]; !ok && resourcehelper.IsSupportedPodLevelResource(name) {
			if r.Requests == nil {
				r.Requests = v1.ResourceList{}
			}
			q := list[name]
			r.Requests[name] = q.DeepCopy()
		}
	}
	sums := resourcehelper.AggregateContainerRequests(p, none)
	for name := range sums {
		if !isHugePages(name) {
			add(name, sums)
		}
	}
	for name := range r.Limits {
		add(name, r.Limits)
	}
}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

// hostPorts: on the node's network a container's port is the node's.
func hostPorts(lists [][]v1.Container) {
	for _, list := range lists {
		for i := range list {
			for j := range list[i].Ports {
				fill(&list[i].Ports[j].HostPort, list[i].Ports[j].ContainerPort)
			}
		}
	}
}

func container(c *v1.Container) {
	fill(&c.ImagePullPolicy, pullPolicy(c.Image))
	fill(&c.TerminationMessagePath, v1.TerminationMessagePathDefault)
	fill(&c.TerminationMessagePolicy, v1.TerminationMessageReadFile)
	for i := range c.Ports {
		fill(&c.Ports[i].Protocol, v1.ProtocolTCP)
	}
	for i := range c.Env {
		from := c.Env[i].ValueFrom
		if from == nil {
			continue
		}
		fieldRef(from.FieldRef)
		if from.FileKeyRef != nil {
			setDefault(&from.FileKeyRef.Optional, false)
		}
	}
	round(c.Resources.Limits)
	round(c.Resources.Requests)
	for _, probe := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe == nil {
			continue
		}
		fill(&probe.TimeoutSeconds, 1)
		fill(&probe.PeriodSeconds, 10)
		fill(&probe.SuccessThreshold, 1)
		fill(&probe.FailureThreshold, 3)
		httpGet(probe.HTTPGet)
		if probe.GRPC != nil {
			setDefault(&probe.GRPC.Service, "")
		}
	}
	if l := c.Lifecycle; l != nil {
		for _, h := range []*v1.LifecycleHandler{l.PostStart, l.PreStop} {
			if h != nil {
				httpGet(h.HTTPGet)
			}
		}
	}
}

func httpGet(a *v1.HTTPGetAction) {
	if a != nil {
		fill(&a.Path, "/")
		fill(&a.Scheme, v1.URISchemeHTTP)
	}
}

func fieldRef(f *v1.ObjectFieldSelector) {
	if f != nil {
		fill(&f.APIVersion, "v1")
	}
}

// pullPolicy is Always for :latest and for an image without tag and digest.
func pullPolicy(image string) v1.PullPolicy {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return v1.PullIfNotPresent // the image is refused later
	}
	if tagged, ok := named.(reference.Tagged); ok {
		if tagged.Tag() == "latest" {
			return v1.PullAlways
		}
		return v1.PullIfNotPresent
	}
	if _, ok := named.(reference.Digested); ok {
		return v1.PullIfNotPresent
	}
	return v1.PullAlways
}

func volume(v *v1.Volume) {
	s := &v.VolumeSource
	if ptr.AllPtrFieldsNil(s) {
		s.EmptyDir = &v1.EmptyDirVolumeSource{}
	}
	switch {
	case s.Image != nil:
		fill(&s.Image.PullPolicy, pullPolicy(s.Image.Reference))
	case s.HostPath != nil:
		setDefault(&s.HostPath.Type, v1.HostPathUnset)
	case s.Secret != nil:
		setDefault(&s.Secret.DefaultMode, v1.SecretVolumeSourceDefaultMode)
	case s.ConfigMap != nil:
		setDefault(&s.ConfigMap.DefaultMode, v1.ConfigMapVolumeSourceDefaultMode)
	case s.DownwardAPI != nil:
		setDefault(&s.DownwardAPI.DefaultMode, v1.DownwardAPIVolumeSourceDefaultMode)
		downwardItems(s.DownwardAPI.Items)
	case s.Projected != nil:
		projected(s.Projected)
	case s.ISCSI != nil:
		fill(&s.ISCSI.ISCSIInterface, "default")
	case s.RBD != nil:
		fill(&s.RBD.RBDPool, "rbd")
		fill(&s.RBD.RadosUser, "admin")
		fill(&s.RBD.Keyring, "/etc/ceph/keyring")
	case s.ScaleIO != nil:
		fill(&s.ScaleIO.StorageMode, "ThinProvisioned")
		fill(&s.ScaleIO.FSType, "xfs")
	case s.AzureDisk != nil:
		setDefault(&s.AzureDisk.CachingMode, v1.AzureDataDiskCachingReadWrite)
		setDefault(&s.AzureDisk.FSType, "ext4")
		setDefault(&s.AzureDisk.ReadOnly, false)
		setDefault(&s.AzureDisk.Kind, v1.AzureSharedBlobDisk)
	case s.Ephemeral != nil && s.Ephemeral.VolumeClaimTemplate != nil:
		claim := &s.Ephemeral.VolumeClaimTemplate.Spec
		setDefault(&claim.VolumeMode, v1.PersistentVolumeFilesystem)
		round(claim.Resources.Limits)
		round(claim.Resources.Requests)
	}
}

func projected(p *v1.ProjectedVolumeSource) {
	setDefault(&p.DefaultMode, v1.ProjectedVolumeSourceDefaultMode)
	for i := range p.Sources {
		if d := p.Sources[i].DownwardAPI; d != nil {
			downwardItems(d.Items)
		}
		if t := p.Sources[i].ServiceAccountToken; t != nil {
			setDefault(&t.ExpirationSeconds, 60*60)
		}
	}
}

func downwardItems(items []v1.DownwardAPIVolumeFile) {
	for i := range items {
		fieldRef(items[i].FieldRef)
	}
}

// round rounds quantities up to thousandths, the finest the API keeps.
func round(list v1.ResourceList) {
	for name, q := range list {
		q.RoundUp(-3)
		list[name] = q
	}
}

// fill sets a field that is zero.
func fill[T comparable](field *T, value T) { *field = cmp.Or(*field, value) }

// setDefault sets a pointer that is nil.
func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}
