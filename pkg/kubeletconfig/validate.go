// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Validate checks an effective configuration and returns every error, each
// with the path of its field. What depends on the machine is left to
// [CheckHost]; whether Sextant acts on a field is not judged here.
func Validate(c *Config) field.ErrorList {
	k := c.Kubelet.DeepCopy()
	errs := validateGates(k.FeatureGates, field.NewPath("featureGates"))
	v := &validator{k: k, gates: gatesOf(k.FeatureGates), standalone: c.Standalone(), errs: errs}
	fillNil(k)
	v.serving()
	v.authentication()
	v.tls()
	v.clients()
	v.nodeStatus()
	v.pods()
	v.dns()
	v.shutdown()
	v.runtime()
	v.imagePulls()
	v.imageGC()
	v.containerLogs()
	v.cgroups()
	v.allocatable()
	v.managers()
	v.reservedMemory()
	v.memoryQoS()
	v.evictions()
	v.logging()
	v.observability()
	return v.errs
}

// validator collects errors about one configuration. It has many methods because each checks
// one part of it, and all add to one list.
type validator struct {
	k          *kubeletv1beta1.KubeletConfiguration
	gates      gates
	standalone bool
	errs       field.ErrorList
}

// at turns a dotted path into a field path.
func at(path string) *field.Path { return field.NewPath(path) }

func (v *validator) invalid(p *field.Path, value any, format string, args ...any) {
	v.errs = append(v.errs, field.Invalid(p, value, fmt.Sprintf(format, args...)))
}

func (v *validator) forbidden(p *field.Path, format string, args ...any) {
	v.errs = append(v.errs, field.Forbidden(p, fmt.Sprintf(format, args...)))
}

func (v *validator) required(p *field.Path, format string, args ...any) {
	v.errs = append(v.errs, field.Required(p, fmt.Sprintf(format, args...)))
}

// oneOf checks an enumeration.
func oneOf[T ~string](v *validator, path string, value T, allowed ...T) {
	if !slices.Contains(allowed, value) {
		v.errs = append(v.errs, field.NotSupported(at(path), value, allowed))
	}
}

// notNegative checks a count.
func (v *validator) notNegative(path string, value int64) {
	if value < 0 {
		v.invalid(at(path), value, "must not be negative")
	}
}

// between checks a number against bounds that belong to it.
func (v *validator) between(path string, value, low, high int64) {
	if value < low || value > high {
		v.invalid(at(path), value, "must be between %d and %d", low, high)
	}
}

// port checks a port; zero turns the server off where that is allowed.
func (v *validator) port(path string, value int32, zeroIsOff bool) {
	if value == 0 && zeroIsOff {
		return
	}
	if len(validation.IsValidPortNum(int(value))) > 0 {
		v.invalid(at(path), value, "must be between 1 and 65535")
	}
}

// positive checks a period.
func (v *validator) positive(path string, d time.Duration) {
	if d <= 0 {
		v.invalid(at(path), d.String(), "must be greater than zero")
	}
}

// durNotNegative checks a duration that may be zero.
func (v *validator) durNotNegative(path string, d time.Duration) {
	if d < 0 {
		v.invalid(at(path), d.String(), "must not be negative")
	}
}

// fillNil gives pointers that are nil their default, so that rules need not
// look for nil. What is set, to zero too, stays as it is.
func fillNil(k *kubeletv1beta1.KubeletConfiguration) {
	full := k.DeepCopy()
	SetDefaults(full)
	var fill func(to, from reflect.Value)
	fill = func(to, from reflect.Value) {
		for i := range to.NumField() {
			t, f := to.Field(i), from.Field(i)
			switch {
			case t.Kind() == reflect.Pointer && t.IsNil():
				t.Set(f)
			case t.Kind() == reflect.Struct && !decodesItself(t.Type()):
				fill(t, f)
			}
		}
	}
	fill(reflect.ValueOf(k).Elem(), reflect.ValueOf(full).Elem())
}
