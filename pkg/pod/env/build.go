package env

import (
	"errors"
	"fmt"
	"io/fs"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/sextant-node/sextant/pkg/pod/downward"
)

// Build returns the environment of a container, sorted by name. The text of the error is
// the message of CreateContainerConfigError.
//
// Service variables come first, then envFrom in order, then env; a later one replaces an
// earlier of the same name. A value of env may refer to what is defined before it, and to
// service variables.
func Build(in Input) ([]Var, error) {
	b := &builder{Input: in, services: map[string]string{}, values: map[string]string{},
		configMaps: map[string]*v1.ConfigMap{}, secrets: map[string]*v1.Secret{}}
	links := in.Pod.Spec.EnableServiceLinks == nil || *in.Pod.Spec.EnableServiceLinks
	for _, v := range ServiceVars(in.Pod.Namespace, links, in.Services) {
		b.services[v.Name] = v.Value
	}
	for i := range in.Container.EnvFrom {
		if err := b.from(&in.Container.EnvFrom[i]); err != nil {
			return nil, err
		}
	}
	for i := range in.Container.Env {
		v := &in.Container.Env[i]
		value, ok, err := b.value(v)
		if err != nil {
			return nil, err
		}
		if ok {
			b.values[v.Name] = value
		}
	}
	for name, value := range b.services {
		if _, ok := b.values[name]; !ok {
			b.values[name] = value
		}
	}
	return sorted(b.values), nil
}

type builder struct {
	Input
	services, values map[string]string
	configMaps       map[string]*v1.ConfigMap
	secrets          map[string]*v1.Secret
}

// from adds all keys of an object.
func (b *builder) from(source *v1.EnvFromSource) error {
	switch {
	case source.ConfigMapRef != nil:
		m, err := b.configMap(source.ConfigMapRef.Name, source.ConfigMapRef.Optional)
		if m == nil || err != nil {
			return err
		}
		for key, value := range m.Data {
			b.values[source.Prefix+key] = value
		}
	case source.SecretRef != nil:
		s, err := b.secret(source.SecretRef.Name, source.SecretRef.Optional)
		if s == nil || err != nil {
			return err
		}
		for key, value := range s.Data {
			b.values[source.Prefix+key] = string(value)
		}
	}
	return nil
}

// value resolves one variable; ok is false for an optional one that is not there.
func (b *builder) value(v *v1.EnvVar) (value string, ok bool, err error) {
	if v.Value != "" {
		return Expand(v.Value, b.lookup), true, nil
	}
	if v.ValueFrom == nil {
		return "", true, nil
	}
	switch from := v.ValueFrom; {
	case from.FieldRef != nil:
		value, err = downward.Env(b.Pod, from.FieldRef, downward.Addresses{PodIPs: b.PodIPs, HostIPs: b.HostIPs})
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err = downward.Resource(b.Pod, b.Container, from.ResourceFieldRef, b.NodeAllocatable)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		return b.configMapKey(from.ConfigMapKeyRef)
	case from.SecretKeyRef != nil:
		return b.secretKey(from.SecretKeyRef)
	case from.FileKeyRef != nil:
		return b.fileKey(from.FileKeyRef)
	}
	return "", true, nil
}

func (b *builder) lookup(name string) (string, bool) {
	if value, ok := b.values[name]; ok {
		return value, true
	}
	value, ok := b.services[name]
	return value, ok
}

func (b *builder) configMapKey(ref *v1.ConfigMapKeySelector) (string, bool, error) {
	m, err := b.configMap(ref.Name, ref.Optional)
	if m == nil || err != nil {
		return "", false, err
	}
	value, ok := m.Data[ref.Key]
	if !ok && !isTrue(ref.Optional) {
		return "", false, fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", ref.Key, b.Pod.Namespace, ref.Name)
	}
	return value, ok, nil
}

func (b *builder) secretKey(ref *v1.SecretKeySelector) (string, bool, error) {
	s, err := b.secret(ref.Name, ref.Optional)
	if s == nil || err != nil {
		return "", false, err
	}
	value, ok := s.Data[ref.Key]
	if !ok && !isTrue(ref.Optional) {
		return "", false, fmt.Errorf("couldn't find key %v in Secret %v/%v", ref.Key, b.Pod.Namespace, ref.Name)
	}
	return string(value), ok, nil
}

// fileKey takes a variable from an env file in a volume (KEP-3721).
func (b *builder) fileKey(ref *v1.FileKeySelector) (string, bool, error) {
	if b.Files == nil {
		return "", false, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", ref.VolumeName)
	}
	content, err := b.Files.EnvFile(ref.VolumeName, ref.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if isTrue(ref.Optional) {
			return "", false, nil
		}
		return "", false, fmt.Errorf("environment variable file %q not found in volume %q", ref.Path, ref.VolumeName)
	case err != nil:
		return "", false, fmt.Errorf("environment variable file %q in volume %q: %w", ref.Path, ref.VolumeName, err)
	}
	value, err := FileValue(content, ref.Key)
	if err != nil {
		return "", false, fmt.Errorf("couldn't parse env file %q in volume %q: %w", ref.Path, ref.VolumeName, err)
	}
	if value == "" {
		if isTrue(ref.Optional) {
			return "", false, nil
		}
		return "", false, fmt.Errorf("environment variable key %q not found in file %q", ref.Key, ref.Path)
	}
	return value, true, nil
}

// configMap looks an object up once for each container. It is nil without an error when
// an optional one does not exist.
func (b *builder) configMap(name string, optional *bool) (*v1.ConfigMap, error) {
	if m, ok := b.configMaps[name]; ok {
		return m, nil
	}
	if b.Objects == nil {
		return nil, fmt.Errorf("couldn't get configMap %v/%v, no kubeClient defined", b.Pod.Namespace, name)
	}
	m, err := b.Objects.ConfigMap(b.Pod.Namespace, name)
	if err != nil {
		if apierrors.IsNotFound(err) && isTrue(optional) {
			return nil, nil
		}
		return nil, err
	}
	b.configMaps[name] = m
	return m, nil
}

func (b *builder) secret(name string, optional *bool) (*v1.Secret, error) {
	if s, ok := b.secrets[name]; ok {
		return s, nil
	}
	if b.Objects == nil {
		return nil, fmt.Errorf("couldn't get secret %v/%v, no kubeClient defined", b.Pod.Namespace, name)
	}
	s, err := b.Objects.Secret(b.Pod.Namespace, name)
	if err != nil {
		if apierrors.IsNotFound(err) && isTrue(optional) {
			return nil, nil
		}
		return nil, err
	}
	b.secrets[name] = s
	return s, nil
}

func isTrue(b *bool) bool { return b != nil && *b }
