// SPDX-License-Identifier: Apache-2.0

package env

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"

	"github.com/sextant-node/sextant/pkg/pod/downward"
)

// Build returns the environment of a container, sorted by name. The text of the error is
// the message of CreateContainerConfigError.
//
// Service variables come first, then envFrom in order, then env; a later one replaces an
// earlier of the same name. A value of env may refer to what is defined before it, and to
// service variables. What exceeds MaxValue or MaxTotal is an error that names the
// variable.
func Build(in Input) ([]Var, error) {
	b := &builder{Input: in, services: map[string]string{}, values: map[string]string{},
		configMaps: map[string]*v1.ConfigMap{}, secrets: map[string]*v1.Secret{}}
	links := ptr.Deref(in.Pod.Spec.EnableServiceLinks, v1.DefaultEnableServiceLinks)
	for _, v := range ServiceVars(in.Pod.Namespace, links, in.Services) {
		if err := b.used.add(v.Name, v.Value); err != nil {
			return nil, ofVariable(v.Name, err)
		}
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
		if !ok {
			continue
		}
		if err := b.set(v.Name, value); err != nil {
			return nil, err
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
	files            map[envFile]*fileValues
	// used counts service variables, values, and those that env replaced.
	used budget
	// held counts the values of files, which are kept before they are used.
	held budget
}

func (b *builder) set(name, value string) error {
	if err := b.used.add(name, value); err != nil {
		return ofVariable(name, err)
	}
	b.values[name] = value
	return nil
}

// setAll sets a variable for each key of an object, in the order of the keys, so that an
// error names the same variable each time.
func setAll[T string | []byte](b *builder, prefix string, data map[string]T) error {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		name := prefix + key
		if old, ok := b.values[name]; ok {
			b.used -= budget(len(name) + len(old))
		}
		if err := b.set(name, string(data[key])); err != nil {
			return err
		}
	}
	return nil
}

// from adds all keys of an object.
func (b *builder) from(source *v1.EnvFromSource) error {
	switch {
	case source.ConfigMapRef != nil:
		m, err := b.configMap(source.ConfigMapRef.Name, source.ConfigMapRef.Optional)
		if m == nil || err != nil {
			return err
		}
		return setAll(b, source.Prefix, m.Data)
	case source.SecretRef != nil:
		s, err := b.secret(source.SecretRef.Name, source.SecretRef.Optional)
		if s == nil || err != nil {
			return err
		}
		return setAll(b, source.Prefix, s.Data)
	}
	return nil
}

// value resolves one variable; ok is false for an optional one that is not there.
func (b *builder) value(v *v1.EnvVar) (value string, ok bool, err error) {
	if v.Value != "" {
		if value, err = Expand(v.Value, MaxValue, b.lookup); err != nil {
			return "", false, ofVariable(v.Name, err)
		}
		return value, true, nil
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
		return b.fileKey(v.Name, from.FileKeyRef)
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
	if !ok && !ptr.Deref(ref.Optional, false) {
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
	if !ok && !ptr.Deref(ref.Optional, false) {
		return "", false, fmt.Errorf("couldn't find key %v in Secret %v/%v", ref.Key, b.Pod.Namespace, ref.Name)
	}
	return string(value), ok, nil
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
		if apierrors.IsNotFound(err) && ptr.Deref(optional, false) {
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
		if apierrors.IsNotFound(err) && ptr.Deref(optional, false) {
			return nil, nil
		}
		return nil, err
	}
	b.secrets[name] = s
	return s, nil
}
