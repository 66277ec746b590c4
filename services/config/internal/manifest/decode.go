// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
// Ignored, when it is not nil, says beside the pods what of the manifest has no effect, as
// with a kubelet: unknown fields, keys given twice, further documents.
//
// The annotation kubernetes.io/config.seen is left to the caller, who knows when it saw
// the pod first.
func Decode(data []byte, src Source) (pods []*v1.Pod, ignored, err error) {
	pods, unused, err := decode(data, src)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", src, err)
	}
	if len(unused) > 0 {
		ignored = fmt.Errorf("%s: %s", src, strings.Join(unused, "; "))
	}
	return pods, ignored, nil
}

func decode(data []byte, src Source) (pods []*v1.Pod, unused []string, err error) {
	if len(data) > MaxSize {
		return nil, nil, fmt.Errorf("larger than %d bytes", MaxSize)
	}
	doc, unused, err := document(data)
	if err != nil {
		return nil, nil, err
	}
	pods, more, err := parse(doc, src.Kind == pod.SourceHTTP)
	if err != nil {
		return nil, nil, err
	}
	names := map[string]bool{}
	for i, p := range pods {
		if err := prepare(p, src); err != nil {
			if len(pods) > 1 {
				return nil, nil, fmt.Errorf("items[%d] (%s): %w", i, p.Name, err)
			}
			return nil, nil, err
		}
		if names[pod.FullName(p)] {
			return nil, nil, fmt.Errorf("items[%d].metadata.name: duplicate pod %s/%s", i, p.Namespace, p.Name)
		}
		names[pod.FullName(p)] = true
	}
	return pods, append(unused, more...), nil
}

// strictScheme knows the two kinds a manifest may hold.
var strictScheme = func() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(v1.SchemeGroupVersion, &v1.Pod{}, &v1.PodList{})
	return s
}()

// strict decodes as a decoder that is not does, and says besides what that passes over.
var strict = json.NewSerializerWithOptions(json.DefaultMetaFactory, strictScheme, strictScheme, json.SerializerOptions{Strict: true})

// document returns the document of data that counts, as JSON, and what of the data has no
// effect.
func document(data []byte) (doc []byte, unused []string, err error) {
	if utilyaml.IsJSONBuffer(data) {
		return data, nil, nil
	}
	text, more := first(data)
	if text == nil {
		return nil, nil, errors.New("empty: want a Pod")
	}
	if more {
		unused = append(unused, "more than one YAML document: only the first counts")
	}
	if err := yamlsize.Check(text, MaxSize); err != nil {
		return nil, nil, fmt.Errorf("not valid YAML: %s", oneLine(err))
	}
	doc, twice := yaml.YAMLToJSONStrict(text)
	if twice == nil {
		return doc, unused, nil
	}
	if doc, err = yaml.YAMLToJSON(text); err != nil {
		return nil, nil, fmt.Errorf("not valid YAML: %s", oneLine(err))
	}
	_, keys, _ := strings.Cut(twice.Error(), "\n")
	for key := range strings.Lines(keys) {
		unused = append(unused, strings.TrimSpace(key))
	}
	return doc, unused, nil
}

// parse decodes a document, and says which of its fields have no effect.
func parse(doc []byte, listAllowed bool) (pods []*v1.Pod, unused []string, err error) {
	obj, gvk, err := strict.Decode(doc, nil, nil)
	if passed, ok := runtime.AsStrictDecodingError(err); ok {
		err = nil
		for _, e := range passed.Errors() {
			unused = append(unused, oneLine(e))
		}
	}
	switch {
	case runtime.IsMissingKind(err):
		return nil, nil, errors.New("kind: Required value: want Pod")
	case runtime.IsMissingVersion(err):
		return nil, nil, errors.New("apiVersion: Required value: want v1")
	case runtime.IsNotRegisteredError(err):
		return nil, nil, fmt.Errorf("apiVersion %q, kind %q: want v1, Pod", gvk.GroupVersion(), gvk.Kind)
	case err != nil:
		return nil, nil, errors.New(oneLine(err))
	}
	switch obj := obj.(type) {
	case *v1.Pod:
		pods = []*v1.Pod{obj}
	case *v1.PodList:
		if !listAllowed {
			return nil, nil, errors.New("kind PodList: a file holds one Pod")
		}
		for i := range obj.Items {
			pods = append(pods, &obj.Items[i])
		}
	}
	for _, p := range pods {
		p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"} // Kind: has it as well as kind:
	}
	return pods, unused, nil
}

// first returns the first document in data that is not empty, which is all that a kubelet
// reads, and whether others follow. Empty lines stand for what comes before it, so that
// line numbers in messages are those of the file.
func first(data []byte) (doc []byte, more bool) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	begin, end, at, held := 0, 0, 0, false
	for line := range bytes.Lines(data) {
		text, marked := cutMark(line)
		switch {
		case marked && !held:
			begin = at
		case marked && end == 0:
			end = at
		}
		if !blank(text) {
			more, held = end > 0, true
		}
		if more {
			break
		}
		at += len(line)
	}
	if !held {
		return nil, false
	}
	if end == 0 {
		end = len(data)
	}
	return append(bytes.Repeat([]byte("\n"), bytes.Count(data[:begin], []byte("\n"))), data[begin:end]...), more
}

// cutMark reports whether a line begins or ends a document, and returns what else it holds.
func cutMark(line []byte) (text []byte, marked bool) {
	for _, mark := range []string{"---", "..."} {
		text, marked := bytes.CutPrefix(line, []byte(mark))
		if marked && (len(text) == 0 || bytes.ContainsAny(text[:1], " \t\r\n")) {
			return text, true
		}
	}
	return line, false
}

// blank reports whether a line holds nothing of a document: only a comment or a directive.
func blank(line []byte) bool {
	text := bytes.TrimSpace(line)
	return len(text) == 0 || text[0] == '#' || line[0] == '%'
}

// oneLine puts an error that lists several on one line each into one line.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
