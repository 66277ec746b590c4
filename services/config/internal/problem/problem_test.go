// SPDX-License-Identifier: Apache-2.0

package problem

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestOf(t *testing.T) {
	invalid := field.ErrorList{
		field.Required(field.NewPath("spec", "containers").Index(0).Child("image"), ""),
		field.Invalid(field.NewPath("metadata", "name"), "X", "lower case"),
	}.ToAggregate()
	cases := map[string]struct {
		err     error
		field   string
		message string
	}{
		"validation":         {fmt.Errorf("manifest /m/a.yaml: invalid pod: %w", invalid), "spec.containers[0].image", "invalid pod: ["},
		"validation in list": {fmt.Errorf("manifest /m/a.yaml: items[2] (db): invalid pod: %w", invalid), "items[2].spec.containers[0].image", "items[2] (db)"},
		"unknown field":      {errors.New(`manifest /m/a.yaml: strict decoding error: unknown field "spec.foo"`), "spec.foo", "strict decoding"},
		"key twice":          {errors.New(`manifest /m/a.yaml: line 4: key "image" already set in map`), "image", "line 4: key"},
		"wrong type":         {errors.New("json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool"), "spec.hostNetwork", "json: "},
		"leading path":       {errors.New("metadata.name: Required value"), "metadata.name", "metadata.name"},
		"a bare field":       {errors.New("kind: Required value: want Pod"), "kind", "kind"},
		"index":              {errors.New("items[1].metadata.name: duplicate pod a/b"), "items[1].metadata.name", "items"},
		"prose is no field":  {errors.New("not valid YAML: yaml: line 3"), "", "not valid"},
		"yaml is no field":   {errors.New("yaml: line 3: x"), "", "yaml"},
		"several lines":      {errors.New("one\n  two\tthree"), "", "one two three"},
		"not UTF-8":          {errors.New("bad \xff byte"), "", "bad ? byte"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := Of("/m/a.yaml", c.err)
			if p.Field != c.field || !strings.HasPrefix(p.Message, c.message) || p.Origin != "/m/a.yaml" {
				t.Errorf("got %+v", p)
			}
		})
	}
	if p := Of("a", errors.New(strings.Repeat("ä", 5000))); len(p.Message) > maxMessage+8 {
		t.Errorf("message of %d bytes", len(p.Message))
	}
}
