// SPDX-License-Identifier: Apache-2.0

package frozen

import (
	"bytes"
	"encoding"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// Shape compares what this tree may write of a record with what each kept version
// could: testdata/frozen/VERSION/TABLE.shape has a line for each field of its JSON form
// and the kind of value there. None of them may be missing or be of another kind, so
// that a version which is gone back to reads what this one wrote. Records of protobuf
// have "buf breaking" for that.
func Shape[T any](t testing.TB, table string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join("testdata", "frozen", "*", table+".shape"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no frozen shape of %s: %v", table, err)
	}
	now := strings.Split(ShapeOf[T](), "\n")
	for _, path := range found {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			if was := strings.TrimSuffix(string(line), "\n"); !slices.Contains(now, was) {
				t.Errorf("%s: %s: there is no %q any more", filepath.Base(filepath.Dir(path)), table, was)
			}
		}
	}
}

// ShapeOf is a line "path kind" for each value that encoding/json writes of a T, sorted.
func ShapeOf[T any]() string {
	lines := shape(nil, "", reflect.TypeFor[T](), nil)
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines), "\n")
}

func shape(lines []string, at string, of reflect.Type, above []reflect.Type) []string {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch {
	case of == reflect.TypeFor[time.Time]():
		return append(lines, at+" time")
	case implements[json.Marshaler](of):
		return append(lines, at+" json of "+of.Name())
	case implements[encoding.TextMarshaler](of):
		return append(lines, at+" text of "+of.Name())
	case slices.Contains(above, of):
		return append(lines, at+" again")
	}
	switch of.Kind() {
	case reflect.Struct:
		for i := range of.NumField() {
			lines = field(lines, at, of.Field(i), append(slices.Clip(above), of))
		}
		return lines
	case reflect.Map:
		return shape(lines, at+"/*", of.Elem(), above)
	case reflect.Slice, reflect.Array:
		if of.Elem().Kind() == reflect.Uint8 {
			return append(lines, at+" bytes")
		}
		return shape(lines, at+"/#", of.Elem(), above)
	case reflect.String, reflect.Bool:
		return append(lines, at+" "+of.Kind().String())
	default:
		return append(lines, at+" number")
	}
}

func field(lines []string, at string, f reflect.StructField, above []reflect.Type) []string {
	tag := f.Tag.Get("json")
	name, options, _ := strings.Cut(tag, ",")
	switch {
	case tag == "-" || !f.IsExported() && !f.Anonymous:
		return lines
	case f.Anonymous && name == "":
		return shape(lines, at, f.Type, above)
	case name == "":
		name = f.Name
	}
	if slices.Contains(strings.Split(options, ","), "string") {
		return append(lines, at+"/"+name+" quoted")
	}
	return shape(lines, at+"/"+name, f.Type, above)
}

func implements[I any](of reflect.Type) bool {
	i := reflect.TypeFor[I]()
	return of.Implements(i) || reflect.PointerTo(of).Implements(i)
}
