// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sextant-node/sextant/pkg/pod"
)

// APIReference is why a pod needs the API server, nil when it does not. A static pod has
// to run without it, so it may not refer to API objects.
func APIReference(p *v1.Pod) *field.Error {
	spec := field.NewPath("spec")
	if p.Spec.ServiceAccountName != "" {
		return forbidden(spec.Child("serviceAccountName"), "serviceaccounts")
	}
	if len(p.Spec.ImagePullSecrets) > 0 {
		return forbidden(spec.Child("imagePullSecrets"), "secrets")
	}
	if len(p.Spec.ResourceClaims) > 0 {
		return forbidden(spec.Child("resourceClaims"), "resourceclaims")
	}
	for kind, c := range pod.Containers(p) {
		if err := envReference(containerPath(p, kind, c), c); err != nil {
			return err
		}
	}
	for i := range p.Spec.Volumes {
		if err := volumeReference(spec.Child("volumes").Index(i), &p.Spec.Volumes[i]); err != nil {
			return err
		}
	}
	return nil
}

func forbidden(path *field.Path, what string) *field.Error {
	return field.Forbidden(path, fmt.Sprintf("static pods may not reference %s", what))
}

func containerPath(p *v1.Pod, kind pod.ContainerKind, c *v1.Container) *field.Path {
	list, name := p.Spec.Containers, "containers"
	if kind == pod.Init || kind == pod.Sidecar {
		list, name = p.Spec.InitContainers, "initContainers"
	}
	path := field.NewPath("spec", name)
	for i := range list {
		if &list[i] == c {
			return path.Index(i)
		}
	}
	return path.Key(c.Name)
}

func envReference(path *field.Path, c *v1.Container) *field.Error {
	for i, from := range c.EnvFrom {
		switch {
		case from.SecretRef != nil:
			return forbidden(path.Child("envFrom").Index(i).Child("secretRef"), "secrets")
		case from.ConfigMapRef != nil:
			return forbidden(path.Child("envFrom").Index(i).Child("configMapRef"), "configmaps")
		}
	}
	for i, v := range c.Env {
		if v.ValueFrom == nil {
			continue
		}
		from := path.Child("env").Index(i).Child("valueFrom")
		switch {
		case v.ValueFrom.SecretKeyRef != nil:
			return forbidden(from.Child("secretKeyRef"), "secrets")
		case v.ValueFrom.ConfigMapKeyRef != nil:
			return forbidden(from.Child("configMapKeyRef"), "configmaps")
		}
	}
	return nil
}

func volumeReference(path *field.Path, v *v1.Volume) *field.Error {
	switch {
	case v.ConfigMap != nil:
		return forbidden(path.Child("configMap"), "configmaps (via configmap volumes)")
	case v.Secret != nil:
		return forbidden(path.Child("secret"), "secrets (via secret volumes)")
	case v.CSI != nil:
		return forbidden(path.Child("csi"), "csidrivers (via CSI volumes)")
	case v.Glusterfs != nil:
		return forbidden(path.Child("glusterfs"), "endpoints (via glusterFS volumes)")
	case v.PersistentVolumeClaim != nil:
		return forbidden(path.Child("persistentVolumeClaim"), "persistentvolumeclaims")
	case v.Ephemeral != nil:
		return forbidden(path.Child("ephemeral"), "persistentvolumeclaims (via ephemeral volumes)")
	case v.AzureFile != nil:
		return forbidden(path.Child("azureFile"), "secrets (via azureFile volumes)")
	case v.CephFS != nil && v.CephFS.SecretRef != nil,
		v.Cinder != nil && v.Cinder.SecretRef != nil,
		v.FlexVolume != nil && v.FlexVolume.SecretRef != nil,
		v.RBD != nil && v.RBD.SecretRef != nil,
		v.ScaleIO != nil && v.ScaleIO.SecretRef != nil,
		v.ISCSI != nil && v.ISCSI.SecretRef != nil,
		v.StorageOS != nil && v.StorageOS.SecretRef != nil:
		return forbidden(path, "secrets")
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			s := &v.Projected.Sources[i]
			source := path.Child("projected", "sources").Index(i)
			switch {
			case s.ConfigMap != nil:
				return forbidden(source.Child("configMap"), "configmaps (via projected volumes)")
			case s.Secret != nil:
				return forbidden(source.Child("secret"), "secrets (via projected volumes)")
			case s.ServiceAccountToken != nil:
				return forbidden(source.Child("serviceAccountToken"), "serviceaccounts (via projected volumes)")
			case s.ClusterTrustBundle != nil:
				return forbidden(source.Child("clusterTrustBundle"), "clustertrustbundles")
			case s.PodCertificate != nil:
				return forbidden(source.Child("podCertificate"), "podcertificates")
			}
		}
	}
	return nil
}
