// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"cmp"
	"fmt"
	"path"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Default directories of a node.
const (
	DefaultRootDir      = "/var/lib/kubelet"
	DefaultPodLogsDir   = "/var/log/pods"
	LegacyContainerLogs = "/var/log/containers"
	maxFileName         = 255
	legacyLogSuffix     = ".log"
	podLogsDirSeparator = "_"
)

// PodLogDir is the directory of a pod's logs: <root>/<namespace>_<name>_<uid>.
func PodLogDir(root, namespace, name string, uid types.UID) string {
	return path.Join(root, strings.Join([]string{namespace, name, string(uid)}, podLogsDirSeparator))
}

// ContainerLogDir is the directory of one container's logs.
func ContainerLogDir(root, namespace, name string, uid types.UID, container string) string {
	return path.Join(PodLogDir(root, namespace, name, uid), container)
}

// ContainerLogPath is a container's log file relative to its pod's log directory, as CRI
// wants it: <container>/<restartCount>.log.
func ContainerLogPath(container string, restartCount int) string {
	return path.Join(container, LogFileName(restartCount))
}

// LogFileName is the name of the live log file of one instance.
func LogFileName(restartCount int) string {
	return strconv.Itoa(restartCount) + ".log"
}

// ParseLogFileName returns the restart count a log file, live or rotated, belongs to.
func ParseLogFileName(name string) (restartCount int, ok bool) {
	digits, rest, found := strings.Cut(name, ".")
	if !found || (rest != "log" && !strings.HasPrefix(rest, "log.")) {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 || (len(digits) > 1 && digits[0] == '0') {
		return 0, false
	}
	return n, true
}

// ParsePodLogDir takes the name of a pod's log directory apart.
func ParsePodLogDir(dir string) (namespace, name string, uid types.UID, ok bool) {
	parts := strings.Split(dir, podLogsDirSeparator)
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return "", "", "", false
	}
	return parts[0], parts[1], types.UID(parts[2]), true
}

// LegacyLogLink is the symbolic link log collectors look for:
// /var/log/containers/<pod>_<namespace>_<container>-<id>.log, its name cut to 255 bytes.
func LegacyLogLink(dir, podName, namespace, container, containerID string) string {
	name := fmt.Sprintf("%s_%s-%s", BuildFullName(podName, namespace), container, containerID)
	if limit := maxFileName - len(legacyLogSuffix); len(name) > limit {
		name = name[:limit]
	}
	return path.Join(dir, name+legacyLogSuffix)
}

// Layout knows where things lie below the node's state directory.
type Layout struct {
	// Root is the state directory; empty means DefaultRootDir.
	Root string
}

func (l Layout) join(parts ...string) string {
	return path.Join(append([]string{cmp.Or(l.Root, DefaultRootDir)}, parts...)...)
}

// Pods is the directory that holds one directory for each pod.
func (l Layout) Pods() string { return l.join("pods") }

// Pod is the directory of one pod.
func (l Layout) Pod(uid types.UID) string { return l.join("pods", string(uid)) }

// Volumes is the directory of a pod's volumes.
func (l Layout) Volumes(uid types.UID) string { return path.Join(l.Pod(uid), "volumes") }

// Volume is the directory of one volume. plugin is a name such as
// kubernetes.io/empty-dir; its slashes become tildes.
func (l Layout) Volume(uid types.UID, plugin, volume string) string {
	return path.Join(l.Volumes(uid), EscapePluginName(plugin), volume)
}

// VolumeDevices is the directory of a pod's block volumes.
func (l Layout) VolumeDevices(uid types.UID) string { return path.Join(l.Pod(uid), "volumeDevices") }

// VolumeDevice is the directory of one plugin's block volumes of a pod.
func (l Layout) VolumeDevice(uid types.UID, plugin string) string {
	return path.Join(l.VolumeDevices(uid), EscapePluginName(plugin))
}

// VolumeSubpaths is the directory of the bind mounts made for subPath.
func (l Layout) VolumeSubpaths(uid types.UID) string { return path.Join(l.Pod(uid), "volume-subpaths") }

// VolumeSubpath is the bind mount for one subPath; index is the place in the container's
// volumeMounts.
func (l Layout) VolumeSubpath(uid types.UID, volume, container string, index int) string {
	return path.Join(l.VolumeSubpaths(uid), volume, container, strconv.Itoa(index))
}

// Plugins is the directory a pod's volume plugins may keep data in.
func (l Layout) Plugins(uid types.UID) string { return path.Join(l.Pod(uid), "plugins") }

// Plugin is the data directory of one plugin for one pod.
func (l Layout) Plugin(uid types.UID, plugin string) string {
	return path.Join(l.Plugins(uid), EscapePluginName(plugin))
}

// Containers is the directory that holds one directory for each container of a pod.
func (l Layout) Containers(uid types.UID) string { return path.Join(l.Pod(uid), "containers") }

// Container is the directory of one container's termination message files.
func (l Layout) Container(uid types.UID, container string) string {
	return path.Join(l.Containers(uid), container)
}

// TerminationMessage is the host file behind terminationMessagePath. id is eight
// hexadecimal digits, new for each instance.
func (l Layout) TerminationMessage(uid types.UID, container, id string) string {
	return path.Join(l.Container(uid, container), id)
}

// EtcHosts is the hosts file of a pod.
func (l Layout) EtcHosts(uid types.UID) string { return path.Join(l.Pod(uid), "etc-hosts") }

// UserNamespace is the record of the id range a pod's user namespace uses.
func (l Layout) UserNamespace(uid types.UID) string { return path.Join(l.Pod(uid), "userns") }

// GlobalPlugins is the directory of node-wide plugin data (CSI staging).
func (l Layout) GlobalPlugins() string { return l.join("plugins") }

// PluginsRegistry is the directory plugins announce themselves in.
func (l Layout) PluginsRegistry() string { return l.join("plugins_registry") }

// PodResources is the directory of the pod resources socket.
func (l Layout) PodResources() string { return l.join("pod-resources") }

// DevicePlugins is the directory of the device plugin sockets.
func (l Layout) DevicePlugins() string { return l.join("device-plugins") }

// ManagerState are the files in which a kubelet's managers keep which resources, CPUs, memory, claims
// and devices pods have.
func (l Layout) ManagerState() []string {
	return []string{
		l.join("allocated_pods_state"), l.join("actuated_pods_state"),
		l.join("cpu_manager_state"), l.join("memory_manager_state"), l.join("dra_manager_state"), l.join("device-plugins", "kubelet_internal_checkpoint"),
	}
}

// Checkpoints is the directory of container checkpoints (mode 0700).
func (l Layout) Checkpoints() string { return l.join("checkpoints") }

// PKI is the directory of keys and certificates.
func (l Layout) PKI() string { return l.join("pki") }

// Seccomp is the directory Localhost profiles are relative to.
func (l Layout) Seccomp() string { return l.join("seccomp") }

// EscapePluginName makes a directory name of a plugin name.
func EscapePluginName(plugin string) string { return strings.ReplaceAll(plugin, "/", "~") }
