// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"reflect"

	"k8s.io/apimachinery/pkg/api/equality"
)

// Changes returns the paths of the fields in which two configurations differ,
// those of KubeletConfiguration first and then those of [Node] below "node.".
// Where the values come from does not count.
func Changes(before, after *Config) []string {
	var out []string
	for _, l := range leaves() {
		a, b := l.get(&before.Kubelet), l.get(&after.Kubelet)
		if a.IsValid() != b.IsValid() || (a.IsValid() && !equality.Semantic.DeepEqual(a.Interface(), b.Interface())) {
			out = append(out, l.path)
		}
	}
	a, b := reflect.ValueOf(before.Node), reflect.ValueOf(after.Node)
	for _, f := range fieldsOf(a.Type()) {
		if !equality.Semantic.DeepEqual(a.FieldByIndex(f.index).Interface(), b.FieldByIndex(f.index).Interface()) {
			out = append(out, "node."+f.name)
		}
	}
	return out
}
