// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"reflect"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kubelet prints not the v1.Pod but its internal form, whose types are called core.X
// and whose fields come in another order here and there. fingerprint writes that print
// from a v1.Pod: every struct as {Field:(type)value …}, pointers followed, map keys
// sorted.

// fieldOrders lists the structs whose internal form has other fields, or the same in
// another order.
var fieldOrders = map[reflect.Type][]string{
	reflect.TypeFor[v1.PodSpec](): {
		"Volumes", "InitContainers", "Containers", "EphemeralContainers", "RestartPolicy",
		"TerminationGracePeriodSeconds", "ActiveDeadlineSeconds", "DNSPolicy", "NodeSelector",
		"ServiceAccountName", "AutomountServiceAccountToken", "NodeName", "SecurityContext",
		"ImagePullSecrets", "Hostname", "Subdomain", "SetHostnameAsFQDN", "Affinity", "SchedulerName",
		"Tolerations", "HostAliases", "PriorityClassName", "Priority", "PreemptionPolicy", "DNSConfig",
		"ReadinessGates", "RuntimeClassName", "Overhead", "EnableServiceLinks",
		"TopologySpreadConstraints", "OS", "SchedulingGates", "ResourceClaims", "Resources",
		"HostnameOverride", "SchedulingGroup",
	},
	reflect.TypeFor[v1.VolumeSource](): {
		"HostPath", "EmptyDir", "GCEPersistentDisk", "AWSElasticBlockStore", "GitRepo", "Secret", "NFS",
		"ISCSI", "Glusterfs", "PersistentVolumeClaim", "RBD", "Quobyte", "FlexVolume", "Cinder", "CephFS",
		"Flocker", "DownwardAPI", "FC", "AzureFile", "ConfigMap", "VsphereVolume", "AzureDisk",
		"PhotonPersistentDisk", "Projected", "PortworxVolume", "ScaleIO", "StorageOS", "CSI", "Ephemeral", "Image",
	},
	reflect.TypeFor[v1.PodSecurityContext](): {
		// The first five are fields of v1.PodSpec.
		"HostNetwork", "HostPID", "HostIPC", "ShareProcessNamespace", "HostUsers",
		"SELinuxOptions", "WindowsOptions", "RunAsUser", "RunAsGroup", "RunAsNonRoot",
		"SupplementalGroups", "SupplementalGroupsPolicy", "FSGroup", "FSGroupChangePolicy", "Sysctls",
		"SeccompProfile", "AppArmorProfile", "SELinuxChangePolicy",
	},
	reflect.TypeFor[v1.PodStatus](): {
		"ObservedGeneration", "Phase", "Conditions", "Message", "Reason", "NominatedNodeName", "HostIP",
		"HostIPs", "PodIPs", "StartTime", "QOSClass", "InitContainerStatuses", "ContainerStatuses",
		"EphemeralContainerStatuses", "Resize", "ResourceClaimStatuses", "ExtendedResourceClaimStatus",
		"AllocatedResources", "Resources", "NodeAllocatableResourceClaimStatuses",
	},
}

// The internal form reads these annotations as nothing.
var ignoredAnnotations = []string{
	"pod.beta.kubernetes.io/init-containers", "pod.alpha.kubernetes.io/init-containers",
	"pod.beta.kubernetes.io/init-container-statuses", "pod.alpha.kubernetes.io/init-container-statuses",
}

// fingerprint prints a defaulted pod.
func fingerprint(p *v1.Pod) []byte {
	p = p.DeepCopy()
	p.TypeMeta = metav1.TypeMeta{}
	for _, key := range ignoredAnnotations {
		delete(p.Annotations, key)
	}
	if len(p.Status.PodIPs) == 0 && p.Status.PodIP != "" {
		p.Status.PodIPs = []v1.PodIP{{IP: p.Status.PodIP}}
	}
	w := printer{spec: reflect.ValueOf(&p.Spec).Elem()}
	w.value(reflect.ValueOf(p), true)
	return w.Bytes()
}

type printer struct {
	bytes.Buffer
	spec reflect.Value
}

// value prints v, with its type in front unless the context gives it.
func (w *printer) value(v reflect.Value, typed bool) {
	if typed {
		w.WriteByte('(')
		w.WriteString(internalName(v.Type()))
		w.WriteByte(')')
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			w.WriteString("<nil>")
			return
		}
		w.value(v.Elem(), false)
	case reflect.Bool:
		w.WriteString(strconv.FormatBool(v.Bool()))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		w.WriteString(strconv.FormatInt(v.Int(), 10))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		w.WriteString(strconv.FormatUint(v.Uint(), 10))
	case reflect.String:
		w.WriteString(v.String())
	case reflect.Slice:
		w.slice(v)
	case reflect.Map:
		w.mapping(v)
	case reflect.Struct:
		w.structure(v)
	default:
		panic("pod holds a " + v.Kind().String())
	}
}

func (w *printer) slice(v reflect.Value) {
	if v.IsNil() {
		w.WriteString("<nil>")
		return
	}
	w.WriteByte('[')
	for i := range v.Len() {
		if i > 0 {
			w.WriteByte(' ')
		}
		w.value(v.Index(i), false)
	}
	w.WriteByte(']')
}

func (w *printer) mapping(v reflect.Value) {
	if v.IsNil() {
		w.WriteString("<nil>")
		return
	}
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return bytes.Compare([]byte(a.String()), []byte(b.String())) })
	w.WriteString("map[")
	for i, key := range keys {
		if i > 0 {
			w.WriteByte(' ')
		}
		w.value(key, false)
		w.WriteByte(':')
		w.value(v.MapIndex(key), false)
	}
	w.WriteByte(']')
}

func (w *printer) structure(v reflect.Value) {
	t := v.Type()
	w.WriteByte('{')
	order := fieldOrders[t]
	if order == nil {
		for i := range t.NumField() {
			w.field(i, t.Field(i).Name, v.Field(i))
		}
	}
	for i, name := range order {
		f := v.FieldByName(name)
		if !f.IsValid() {
			f = w.spec.FieldByName(name)
		}
		w.field(i, name, f)
	}
	w.WriteByte('}')
}

func (w *printer) field(i int, name string, v reflect.Value) {
	if i > 0 {
		w.WriteByte(' ')
	}
	w.WriteString(name)
	w.WriteByte(':')
	w.value(v, true)
}

const v1Package = "k8s.io/api/core/v1"

// internalName is the name of a type, core.X for v1.X.
func internalName(t reflect.Type) string {
	switch {
	case t.PkgPath() == v1Package:
		return "core." + t.Name()
	case t.Name() != "":
		return t.String()
	case t.Kind() == reflect.Pointer:
		return "*" + internalName(t.Elem())
	case t.Kind() == reflect.Slice:
		return "[]" + internalName(t.Elem())
	case t.Kind() == reflect.Map:
		return "map[" + internalName(t.Key()) + "]" + internalName(t.Elem())
	}
	return t.String()
}
