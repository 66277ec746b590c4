package manifest

import (
	"reflect"

	v1 "k8s.io/api/core/v1"
)

// sources counts the volume types a volume names. Each is a pointer of VolumeSource.
func sources(v *v1.Volume) int {
	n := 0
	s := reflect.ValueOf(v.VolumeSource)
	for i := range s.NumField() {
		if f := s.Field(i); f.Kind() == reflect.Pointer && !f.IsNil() {
			n++
		}
	}
	return n
}
