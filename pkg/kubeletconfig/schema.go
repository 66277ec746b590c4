// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"cmp"
	"encoding/json"
	"reflect"
	"strings"
	"sync"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// structField is one JSON field of a struct, inlined structs flattened.
type structField struct {
	name  string
	typ   reflect.Type
	index []int
}

// fieldsOf returns the JSON fields of struct type t in declaration order.
func fieldsOf(t reflect.Type) []structField {
	var out []structField
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || !f.IsExported():
		case name == "" && f.Anonymous:
			for _, in := range fieldsOf(f.Type) {
				in.index = append([]int{i}, in.index...)
				out = append(out, in)
			}
		default:
			name = cmp.Or(name, f.Name)
			out = append(out, structField{name, f.Type, []int{i}})
		}
	}
	return out
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// isLeaf reports whether values of type t are set as a whole: scalars, lists,
// maps, and everything that decodes itself.
func isLeaf(t reflect.Type) bool {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind() != reflect.Struct || decodesItself(t)
}

func decodesItself(t reflect.Type) bool { return reflect.PointerTo(t).Implements(unmarshaler) }

// leaf is one settable field of KubeletConfiguration.
type leaf struct {
	path string
	// steps are the field indices from the top, one per level.
	steps [][]int
}

// leaves lists the settable fields of KubeletConfiguration, in its order.
var leaves = sync.OnceValue(func() []leaf {
	var out []leaf
	var walk func(t reflect.Type, prefix string, steps [][]int)
	walk = func(t reflect.Type, prefix string, steps [][]int) {
		for _, f := range fieldsOf(t) {
			l := leaf{prefix + f.name, append(append([][]int{}, steps...), f.index)}
			if isLeaf(f.typ) {
				out = append(out, l)
				continue
			}
			in := f.typ
			if in.Kind() == reflect.Pointer {
				in = in.Elem()
			}
			walk(in, l.path+".", l.steps)
		}
	}
	walk(reflect.TypeFor[kubeletv1beta1.KubeletConfiguration](), "", nil)
	return out
})

// get returns the value of the leaf in k, with pointers followed; the zero
// Value when it, or a struct around it, is nil.
func (l leaf) get(k *kubeletv1beta1.KubeletConfiguration) reflect.Value {
	v := reflect.ValueOf(k).Elem()
	for _, step := range l.steps {
		v = v.FieldByIndex(step)
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return reflect.Value{}
			}
			v = v.Elem()
		}
	}
	return v
}
