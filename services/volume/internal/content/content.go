// SPDX-License-Identifier: Apache-2.0

// Package content decides which files a volume of API objects holds. It is pure; objects and tokens come in
// as lookups.
package content

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/pod/downward"
)

// InMemory reports whether a volume's files are never to reach a disk: a kubelet keeps those
// of a ConfigMap alone there.
func InMemory(v *v1.Volume) bool {
	return v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil
}

// File is one file of a volume.
type File struct {
	Data []byte
	Mode int32
	// UID owns the file; nil for root. Only tokens have one.
	UID *int64
}

// Objects looks up what a pod refers to. An error that wraps ErrWait means "not
// known yet"; ErrAbsent that the API server says there is none.
type Objects interface {
	ConfigMap(namespace, name string) (*v1.ConfigMap, error)
	Secret(namespace, name string) (*v1.Secret, error)
	// Token returns a service-account token for a pod, and when it must be
	// replaced.
	Token(p *v1.Pod, spec *v1.ServiceAccountTokenProjection) (token string, refresh time.Time, err error)
	// TrustBundle is what the ClusterTrustBundles that a source names hold, PEM blocks.
	TrustBundle(s *v1.ClusterTrustBundleProjection) (string, error)
	// Certificate is the key and the certificate chain of a source of a volume, both
	// PEM, and when to look again.
	Certificate(p *v1.Pod, volume string, source int, spec *v1.PodCertificateProjection) (key, chain []byte, refresh time.Time, err error)
	// Gate reports whether a feature gate is on. The error wraps ErrWait while that is not
	// known.
	Gate(name string) (bool, error)
	// Allocatable is the node's, for resource fields without a limit.
	Allocatable() (v1.ResourceList, error)
}

// What is missing, for errors.Is.
var (
	ErrWait   = errors.New("not known yet")
	ErrAbsent = errors.New("not found")
)

// Set is the files of one volume.
type Set struct {
	Files map[string]File
	// Refresh is when a token among them must be replaced; zero for never.
	Refresh time.Time
	// Memory bounds a volume in memory when it is made, in bytes; zero for no
	// bound.
	Memory int64
}

// Files makes the files of a volume, or says what is missing.
func Files(p *v1.Pod, v *v1.Volume, objects Objects) (*Set, error) {
	s := &Set{Files: map[string]File{}}
	b := &builder{pod: p, volume: v.Name, objects: objects, set: s}
	var err error
	switch {
	case v.ConfigMap != nil:
		err = b.configMap(v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional, mode(v.ConfigMap.DefaultMode))
	case v.Secret != nil:
		err = b.secret(v.Secret.SecretName, v.Secret.Items, v.Secret.Optional, mode(v.Secret.DefaultMode))
	case v.DownwardAPI != nil:
		err = b.downward(v.DownwardAPI.Items, mode(v.DownwardAPI.DefaultMode))
	case v.Projected != nil:
		err = b.projected(v.Projected)
	default:
		err = fmt.Errorf("volume %s holds no files", v.Name)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func mode(m *int32) int32 {
	return ptr.Deref(m, 0o644)
}

type builder struct {
	pod     *v1.Pod
	volume  string
	objects Objects
	set     *Set
}

// projected tells of all sources that cannot be had, as a kubelet does; of those that are
// not known yet when there are no others.
func (b *builder) projected(source *v1.ProjectedVolumeSource) error {
	defaultMode := mode(source.DefaultMode)
	var failed, waiting []error
	for i := range source.Sources {
		s := &source.Sources[i]
		var err error
		switch {
		case s.ConfigMap != nil:
			err = b.configMap(s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional, defaultMode)
		case s.Secret != nil:
			err = b.secret(s.Secret.Name, s.Secret.Items, s.Secret.Optional, defaultMode)
		case s.DownwardAPI != nil:
			err = b.downward(s.DownwardAPI.Items, defaultMode)
		case s.ServiceAccountToken != nil:
			err = b.token(s.ServiceAccountToken, defaultMode)
		case s.ClusterTrustBundle != nil:
			err = b.trustBundle(s.ClusterTrustBundle, defaultMode)
		case s.PodCertificate != nil:
			err = b.certificate(i, s.PodCertificate, defaultMode)
		}
		switch {
		case errors.Is(err, ErrWait):
			waiting = append(waiting, fmt.Errorf("sources[%d]: %w", i, err))
		case err != nil:
			failed = append(failed, fmt.Errorf("sources[%d]: %w", i, err))
		}
	}
	if len(failed) > 0 {
		return utilerrors.NewAggregate(failed)
	}
	return utilerrors.NewAggregate(waiting)
}

func (b *builder) configMap(name string, items []v1.KeyToPath, optional *bool, defaultMode int32) error {
	object, err := b.objects.ConfigMap(b.pod.Namespace, name)
	if errors.Is(err, ErrAbsent) && optional != nil && *optional {
		return nil
	}
	if err != nil {
		return unreadable("configmap", name, err)
	}
	data := make(map[string][]byte, len(object.Data)+len(object.BinaryData))
	for key, value := range object.Data {
		data[key] = []byte(value)
	}
	maps.Copy(data, object.BinaryData)
	return b.keys("configmap references non-existent config key", data, items, optional, defaultMode)
}

func (b *builder) secret(name string, items []v1.KeyToPath, optional *bool, defaultMode int32) error {
	object, err := b.objects.Secret(b.pod.Namespace, name)
	if errors.Is(err, ErrAbsent) && optional != nil && *optional {
		return nil
	}
	if err != nil {
		return unreadable("secret", name, err)
	}
	return b.keys("references non-existent secret key", object.Data, items, optional, defaultMode)
}

func unreadable(kind, name string, err error) error {
	if errors.Is(err, ErrWait) || errors.Is(err, ErrAbsent) {
		return fmt.Errorf("%s %q %w", kind, name, err) // the API server's words
	}
	return fmt.Errorf("%s %q: %w", kind, name, err)
}

// keys puts all keys of an object in, or the listed ones at their paths. missing
// is how the kubelet says that a listed key is not there.
func (b *builder) keys(missing string, data map[string][]byte, items []v1.KeyToPath, optional *bool, defaultMode int32) error {
	if len(items) == 0 {
		for key, value := range data {
			b.set.Files[key] = File{Data: value, Mode: defaultMode}
		}
		return nil
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok {
			if optional != nil && *optional {
				continue
			}
			return fmt.Errorf("%s: %s", missing, item.Key)
		}
		if err := b.put(item.Path, File{Data: value, Mode: ptr.Deref(item.Mode, defaultMode)}); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) downward(items []v1.DownwardAPIVolumeFile, defaultMode int32) error {
	var allocatable v1.ResourceList
	for _, item := range items {
		if item.ResourceFieldRef != nil {
			var err error
			if allocatable, err = b.objects.Allocatable(); err != nil {
				return fmt.Errorf("node allocatable: %w", err)
			}
			break
		}
	}
	files, err := downward.Files(b.pod, items, defaultMode, allocatable)
	if err != nil {
		return err
	}
	for name, f := range files {
		if err := b.put(name, File{Data: f.Data, Mode: f.Mode}); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) token(spec *v1.ServiceAccountTokenProjection, defaultMode int32) error {
	token, refresh, err := b.objects.Token(b.pod, spec)
	if err != nil {
		return fmt.Errorf("service account token: %w", err)
	}
	b.refresh(refresh)
	return b.put(spec.Path, b.own([]byte(token), defaultMode))
}

func (b *builder) refresh(at time.Time) {
	if b.set.Refresh.IsZero() || at.Before(b.set.Refresh) {
		b.set.Refresh = at
	}
}

// own is a file for its container's user alone where that user is one (KEP-2451): it is
// that user's, or reaches it by the fsGroup.
func (b *builder) own(data []byte, defaultMode int32) File {
	f := File{Data: data, Mode: defaultMode}
	user := onlyUser(b.pod)
	if user != nil || b.pod.Spec.SecurityContext != nil && b.pod.Spec.SecurityContext.FSGroup != nil {
		f.Mode, f.UID = 0o600, user
	}
	return f
}

func (b *builder) put(name string, f File) error {
	clean := path.Clean(name)
	if path.IsAbs(clean) || clean == "." || clean == ".." || strings.HasPrefix(clean, "../") {
		return fmt.Errorf("path %q leaves the volume", name)
	}
	b.set.Files[clean] = f
	return nil
}

// onlyUser is the uid all containers of a pod run as, or nil.
func onlyUser(p *v1.Pod) *int64 {
	var user *int64
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for _, c := range list {
			var own *int64
			if p.Spec.SecurityContext != nil {
				own = p.Spec.SecurityContext.RunAsUser
			}
			if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
				own = c.SecurityContext.RunAsUser
			}
			if own == nil || user != nil && *user != *own {
				return nil
			}
			user = own
		}
	}
	return user
}
