// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/sextant-node/sextant/pkg/pod"
	"github.com/sextant-node/sextant/pkg/yamlsize"
)

// MaxSize is the size of the largest manifest that is read, in bytes.
const MaxSize = 10 << 20

// Decode reads the manifest of a source into pods that are ready to run: defaulted,
// named, checked. A file holds one Pod, what a URL serves may be a PodList. An error names
// the source and, where there is one, the field. Either all pods are returned or none.
//
// The annotation kubernetes.io/config.seen is left to the caller, who knows when it saw
// the pod first.
func Decode(data []byte, src Source) ([]*v1.Pod, error) {
	pods, err := decode(data, src)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", src, err)
	}
	return pods, nil
}

func decode(data []byte, src Source) ([]*v1.Pod, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("larger than %d bytes", MaxSize)
	}
	pods, err := parse(data, src.Kind == pod.SourceHTTP)
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for i, p := range pods {
		if err := prepare(p, src); err != nil {
			if len(pods) > 1 {
				return nil, fmt.Errorf("items[%d] (%s): %w", i, p.Name, err)
			}
			return nil, err
		}
		if names[pod.FullName(p)] {
			return nil, fmt.Errorf("items[%d].metadata.name: duplicate pod %s/%s", i, p.Namespace, p.Name)
		}
		names[pod.FullName(p)] = true
	}
	return pods, nil
}

// strictScheme knows the two kinds a manifest may hold.
var strictScheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(v1.SchemeGroupVersion, &v1.Pod{}, &v1.PodList{})
	return s
}()

var strict = json.NewSerializerWithOptions(json.DefaultMetaFactory, strictScheme, strictScheme, json.SerializerOptions{Strict: true})

// parse decodes the only document of data.
func parse(data []byte, listAllowed bool) ([]*v1.Pod, error) {
	doc, err := single(data)
	if err != nil {
		return nil, err
	}
	if !utilyaml.IsJSONBuffer(doc) {
		if err := yamlsize.Check(doc, MaxSize); err != nil {
			return nil, fmt.Errorf("not valid YAML: %s", oneLine(err))
		}
		if doc, err = yaml.YAMLToJSONStrict(doc); err != nil {
			return nil, fmt.Errorf("not valid YAML: %s", oneLine(err))
		}
	}
	obj, gvk, err := strict.Decode(doc, nil, nil)
	switch {
	case runtime.IsMissingKind(err):
		return nil, errors.New("kind: Required value: want Pod")
	case runtime.IsMissingVersion(err):
		return nil, errors.New("apiVersion: Required value: want v1")
	case runtime.IsNotRegisteredError(err):
		return nil, fmt.Errorf("apiVersion %q, kind %q: want v1, Pod", gvk.GroupVersion(), gvk.Kind)
	case err != nil:
		return nil, errors.New(oneLine(err))
	}
	switch obj := obj.(type) {
	case *v1.Pod:
		return []*v1.Pod{obj}, nil
	case *v1.PodList:
		if !listAllowed {
			return nil, errors.New("kind PodList: a file holds one Pod")
		}
		pods := make([]*v1.Pod, len(obj.Items))
		for i := range obj.Items {
			pods[i] = &obj.Items[i]
			pods[i].TypeMeta = obj.TypeMeta
			pods[i].Kind = "Pod"
		}
		return pods, nil
	}
	return nil, fmt.Errorf("kind %s: want Pod", gvk.Kind)
}

// single returns the one document in data that is not empty. Empty lines stand for what
// comes before it, so that line numbers in messages are those of the file.
func single(data []byte) ([]byte, error) {
	if utilyaml.IsJSONBuffer(data) {
		return data, nil
	}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	var found []byte
	lines := 0
	for doc := range bytes.SplitSeq(append([]byte("\n"), data...), []byte("\n---")) {
		// What follows the separator on its line belongs to the document.
		switch {
		case blank(doc):
		case found != nil:
			return nil, errors.New("more than one YAML document: a manifest holds one")
		case lines == 0:
			found = bytes.TrimPrefix(doc, []byte("\n"))
		default:
			found = append(bytes.Repeat([]byte("\n"), lines-1), doc...)
		}
		lines += 1 + bytes.Count(doc, []byte("\n"))
	}
	if found == nil {
		return nil, errors.New("empty: want a Pod")
	}
	return found, nil
}

// blank reports whether a document holds nothing but comments and separators.
func blank(doc []byte) bool {
	for line := range bytes.Lines(doc) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("...")) {
			return false
		}
	}
	return true
}

// oneLine puts an error that lists several on one line each into one line.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
