// SPDX-License-Identifier: Apache-2.0

package env

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
)

// objects is a working store of objects; broken makes every look-up fail.
type objects struct {
	configMaps map[string]map[string]string
	secrets    map[string]map[string]string
	broken     bool
	lookups    int
}

var errBroken = errors.New("cache is not ready")

func (o *objects) ConfigMap(namespace, name string) (*v1.ConfigMap, error) {
	o.lookups++
	if o.broken {
		return nil, errBroken
	}
	data, ok := o.configMaps[namespace+"/"+name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
	}
	return &v1.ConfigMap{Data: data}, nil
}

func (o *objects) Secret(namespace, name string) (*v1.Secret, error) {
	o.lookups++
	if o.broken {
		return nil, errBroken
	}
	data, ok := o.secrets[namespace+"/"+name]
	if !ok {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
	}
	s := &v1.Secret{Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	return s, nil
}

// files maps volume/path to content.
type files map[string]string

func (f files) EnvFile(volume, path string) ([]byte, error) {
	content, ok := f[volume+"/"+path]
	if !ok {
		return nil, fmt.Errorf("open: %w", fs.ErrNotExist)
	}
	return []byte(content), nil
}

func service(namespace, name, ip string, ports ...v1.ServicePort) *v1.Service {
	return &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1.ServiceSpec{ClusterIP: ip, Ports: ports}}
}

var kubernetes = service("default", "kubernetes", "10.96.0.1", v1.ServicePort{Name: "https", Port: 443})

func lines(vars []Var) string {
	var b strings.Builder
	for _, v := range vars {
		if !strings.HasPrefix(v.Name, "KUBERNETES_") {
			fmt.Fprintf(&b, "%s=%s\n", v.Name, v.Value)
		}
	}
	return b.String()
}

func TestBuild(t *testing.T) {
	yes := ptr.To(true)
	key := func(cm, k string, optional *bool) *v1.EnvVarSource {
		return &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: cm}, Key: k, Optional: optional}}
	}
	secretKey := func(s, k string, optional *bool) *v1.EnvVarSource {
		return &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: s}, Key: k, Optional: optional}}
	}
	fileKey := func(path, k string, optional *bool) *v1.EnvVarSource {
		return &v1.EnvVarSource{FileKeyRef: &v1.FileKeySelector{VolumeName: "v", Path: path, Key: k, Optional: optional}}
	}
	field := func(path string) *v1.EnvVarSource {
		return &v1.EnvVarSource{FieldRef: &v1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}
	}
	from := func(cm, prefix string, optional *bool) v1.EnvFromSource {
		return v1.EnvFromSource{Prefix: prefix, ConfigMapRef: &v1.ConfigMapEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: cm}, Optional: optional}}
	}
	tests := []struct {
		name    string
		env     []v1.EnvVar
		envFrom []v1.EnvFromSource
		links   *bool
		broken  bool
		want    string
		err     string
	}{
		{name: "order: env over envFrom over services",
			envFrom: []v1.EnvFromSource{from("settings", "", nil), from("more", "", nil)},
			env:     []v1.EnvVar{{Name: "B", Value: "env"}},
			want:    "A=more\nB=env\nDB_PORT=shadowed\nDB_PORT_5432_TCP=tcp://10.0.0.7:5432\nDB_PORT_5432_TCP_ADDR=10.0.0.7\nDB_PORT_5432_TCP_PORT=5432\nDB_PORT_5432_TCP_PROTO=tcp\nDB_SERVICE_HOST=10.0.0.7\nDB_SERVICE_PORT=5432\n",
			links:   yes,
		},
		{name: "prefix and keys that are no identifiers", envFrom: []v1.EnvFromSource{from("odd", "P_", nil)}, want: "P_a.b-c=1\n"},
		{name: "secret", envFrom: []v1.EnvFromSource{{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "creds"}}}}, want: "PASSWORD=s3cret\n"},
		{name: "expansion sees what comes before, and services", links: yes,
			env:  []v1.EnvVar{{Name: "X", Value: "$(Y) $(DB_SERVICE_HOST) $$(Y)"}, {Name: "Y", Value: "y"}, {Name: "Z", Value: "$(Y)"}},
			want: dbVars + "X=$(Y) 10.0.0.7 $(Y)\nY=y\nZ=y\n"},
		{name: "a later definition wins and may use the earlier", env: []v1.EnvVar{{Name: "X", Value: "1"}, {Name: "X", Value: "$(X)2"}}, want: "X=12\n"},
		{name: "empty value", env: []v1.EnvVar{{Name: "X"}}, want: "X=\n"},
		{name: "values that are not expanded", env: []v1.EnvVar{{Name: "X", ValueFrom: key("odd", "dollar", nil)}}, want: "X=$(HOME)\n"},
		{name: "fields", env: []v1.EnvVar{
			{Name: "NAME", ValueFrom: field("metadata.name")}, {Name: "LABEL", ValueFrom: field("metadata.labels['app']")},
			{Name: "IP", ValueFrom: field("status.podIP")}, {Name: "IPS", ValueFrom: field("status.podIPs")},
			{Name: "HOST", ValueFrom: field("status.hostIP")}, {Name: "NODE", ValueFrom: field("spec.nodeName")},
		}, want: "HOST=192.0.2.1\nIP=10.0.0.5\nIPS=10.0.0.5,fd00::5\nLABEL=web\nNAME=p\nNODE=node-1\n"},
		{name: "unknown field", env: []v1.EnvVar{{Name: "X", ValueFrom: field("spec.containers")}}, err: "unsupported fieldPath: spec.containers"},
		{name: "resource", env: []v1.EnvVar{
			{Name: "CPU", ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "limits.cpu"}}},
			{Name: "MEM", ValueFrom: &v1.EnvVarSource{ResourceFieldRef: &v1.ResourceFieldSelector{Resource: "requests.memory", Divisor: resource.MustParse("1Mi")}}},
		}, want: "CPU=4\nMEM=65\n"},
		{name: "key of a config map", env: []v1.EnvVar{{Name: "X", ValueFrom: key("settings", "A", nil)}}, want: "X=settings\n"},
		{name: "missing key", env: []v1.EnvVar{{Name: "X", ValueFrom: key("settings", "nope", nil)}}, err: "couldn't find key nope in ConfigMap ns/settings"},
		{name: "optional missing key", env: []v1.EnvVar{{Name: "X", ValueFrom: key("settings", "nope", yes)}}},
		{name: "missing config map", env: []v1.EnvVar{{Name: "X", ValueFrom: key("nope", "A", nil)}}, err: `configmaps "nope" not found`},
		{name: "optional missing config map", env: []v1.EnvVar{{Name: "X", ValueFrom: key("nope", "A", yes)}}},
		{name: "optional is not a licence to guess", env: []v1.EnvVar{{Name: "X", ValueFrom: key("settings", "A", yes)}}, broken: true, err: "cache is not ready"},
		{name: "missing secret key", env: []v1.EnvVar{{Name: "X", ValueFrom: secretKey("creds", "nope", nil)}}, err: "couldn't find key nope in Secret ns/creds"},
		{name: "optional missing secret", env: []v1.EnvVar{{Name: "X", ValueFrom: secretKey("nope", "A", yes)}}},
		{name: "missing secret", env: []v1.EnvVar{{Name: "X", ValueFrom: secretKey("nope", "A", nil)}}, err: `secrets "nope" not found`},
		{name: "missing config map in envFrom", envFrom: []v1.EnvFromSource{from("nope", "", nil)}, err: `configmaps "nope" not found`},
		{name: "optional missing config map in envFrom", envFrom: []v1.EnvFromSource{from("nope", "", yes)}},
		{name: "file", env: []v1.EnvVar{{Name: "X", ValueFrom: fileKey("env", "K", nil)}}, want: "X=two\nlines\n"},
		{name: "missing key in a file", env: []v1.EnvVar{{Name: "X", ValueFrom: fileKey("env", "nope", nil)}}, err: `environment variable key "nope" not found in file "env"`},
		{name: "optional missing key in a file", env: []v1.EnvVar{{Name: "X", ValueFrom: fileKey("env", "nope", yes)}}},
		{name: "missing file", env: []v1.EnvVar{{Name: "X", ValueFrom: fileKey("gone", "K", nil)}}, err: `environment variable file "gone" not found in volume "v"`},
		{name: "optional missing file", env: []v1.EnvVar{{Name: "X", ValueFrom: fileKey("gone", "K", yes)}}},
		{name: "bad file", env: []v1.EnvVar{{Name: "X", ValueFrom: fileKey("bad", "K", yes)}}, err: `couldn't parse env file "bad" in volume "v": line 1: value must be enclosed in single quotes`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			links := tt.links
			if links == nil {
				links = ptr.To(false)
			}
			o := &objects{broken: tt.broken,
				configMaps: map[string]map[string]string{
					"ns/settings": {"A": "settings", "B": "settings", "DB_PORT": "shadowed"}, "ns/more": {"A": "more"}, "ns/odd": {"a.b-c": "1"},
					"other/nope": {"A": "1"},
				},
				secrets: map[string]map[string]string{"ns/creds": {"PASSWORD": "s3cret"}},
			}
			if strings.HasPrefix(tt.name, "values that") {
				o.configMaps["ns/odd"] = map[string]string{"dollar": "$(HOME)"}
			}
			c := &v1.Container{Name: "c", Env: tt.env, EnvFrom: tt.envFrom, Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceMemory: resource.MustParse("64.5Mi")},
			}}
			got, err := Build(Input{
				Pod: &v1.Pod{
					ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", Labels: map[string]string{"app": "web"}},
					Spec:       v1.PodSpec{NodeName: "node-1", EnableServiceLinks: links, Containers: []v1.Container{*c}},
				},
				Container: c, PodIPs: []string{"10.0.0.5", "fd00::5"}, HostIPs: []string{"192.0.2.1"},
				NodeAllocatable: v1.ResourceList{v1.ResourceCPU: resource.MustParse("3500m")},
				Services:        []*v1.Service{kubernetes, service("ns", "db", "10.0.0.7", v1.ServicePort{Port: 5432})},
				Objects:         o,
				Files:           files{"v/env": "# comment\nA='1'\nK='two\nlines' # more\n", "v/bad": "K=x"},
			})
			if message := fmt.Sprint(err); (err != nil || tt.err != "") && message != tt.err {
				t.Fatalf("err = %v, want %q", err, tt.err)
			}
			if diff := cmp.Diff(tt.want, lines(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

const dbVars = "DB_PORT=tcp://10.0.0.7:5432\nDB_PORT_5432_TCP=tcp://10.0.0.7:5432\nDB_PORT_5432_TCP_ADDR=10.0.0.7\nDB_PORT_5432_TCP_PORT=5432\n" +
	"DB_PORT_5432_TCP_PROTO=tcp\nDB_SERVICE_HOST=10.0.0.7\nDB_SERVICE_PORT=5432\n"

func TestLookupsAreNotRepeated(t *testing.T) {
	o := &objects{configMaps: map[string]map[string]string{"ns/m": {"A": "1", "B": "2"}}}
	from := func(key string) *v1.EnvVarSource {
		return &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "m"}, Key: key}}
	}
	c := &v1.Container{Env: []v1.EnvVar{{Name: "A", ValueFrom: from("A")}, {Name: "B", ValueFrom: from("B")}}}
	if _, err := Build(Input{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}, Container: c, Objects: o}); err != nil || o.lookups != 1 {
		t.Errorf("%d look-ups, %v", o.lookups, err)
	}
	if _, err := Build(Input{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}, Container: c}); err == nil || err.Error() != "couldn't get configMap ns/m, no kubeClient defined" {
		t.Errorf("standalone: %v", err)
	}
}

func TestServiceVars(t *testing.T) {
	services := []*v1.Service{
		kubernetes,
		service("ns", "kubernetes", "10.0.0.9", v1.ServicePort{Port: 1}),
		service("ns", "headless", "None", v1.ServicePort{Port: 1}),
		service("ns", "pending", "", v1.ServicePort{Port: 1}),
		service("elsewhere", "db", "10.0.0.8", v1.ServicePort{Port: 1}),
		service("ns", "my-dns", "fd00::1", v1.ServicePort{Name: "dns-udp", Port: 53, Protocol: v1.ProtocolUDP}, v1.ServicePort{Name: "dns", Port: 53, Protocol: v1.ProtocolTCP}),
	}
	var got []string
	for _, v := range ServiceVars("ns", true, services) {
		if !strings.HasPrefix(v.Name, "KUBERNETES_") {
			got = append(got, v.Name+"="+v.Value)
		}
	}
	want := []string{
		"MY_DNS_PORT=udp://[fd00::1]:53",
		"MY_DNS_PORT_53_TCP=tcp://[fd00::1]:53", "MY_DNS_PORT_53_TCP_ADDR=fd00::1", "MY_DNS_PORT_53_TCP_PORT=53", "MY_DNS_PORT_53_TCP_PROTO=tcp",
		"MY_DNS_PORT_53_UDP=udp://[fd00::1]:53", "MY_DNS_PORT_53_UDP_ADDR=fd00::1", "MY_DNS_PORT_53_UDP_PORT=53", "MY_DNS_PORT_53_UDP_PROTO=udp",
		"MY_DNS_SERVICE_HOST=fd00::1", "MY_DNS_SERVICE_PORT=53", "MY_DNS_SERVICE_PORT_DNS=53", "MY_DNS_SERVICE_PORT_DNS_UDP=53",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// Without links: the API server's, and nothing else.
	values := map[string]string{}
	for _, v := range ServiceVars("ns", false, services) {
		values[v.Name] = v.Value
	}
	if values["KUBERNETES_SERVICE_HOST"] != "10.96.0.1" || values["KUBERNETES_SERVICE_PORT_HTTPS"] != "443" || values["MY_DNS_SERVICE_HOST"] != "" || len(values) != 8 {
		t.Errorf("without links: %v", values)
	}
}

func TestExpand(t *testing.T) {
	lookup := func(name string) (string, bool) {
		v, ok := map[string]string{"A": "1", "B": "$(A)", "": "empty"}[name]
		return v, ok
	}
	for in, want := range map[string]string{
		"":       "",
		"plain":  "plain",
		"$(A)":   "1",
		"$(B)":   "$(A)", // not again
		"$(C)":   "$(C)",
		"$$(A)":  "$(A)",
		"$$$(A)": "$1",
		"$(A":    "$(A",
		"$A":     "$A",
		"a$":     "a$",
		"$$":     "$",
		"$()":    "empty",
		"é$(A)é": "é1é",
		"$(":     "$(",
		"$($(A)": "$($(A)",
	} {
		if got, err := Expand(in, MaxValue, lookup); got != want || err != nil {
			t.Errorf("Expand(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	command, args, err := CommandLine([]string{"x=$(A)", "$(C)"}, []string{}, []Var{{"A", "1"}})
	if diff := cmp.Diff([][]string{{"x=1", "$(C)"}, {}}, [][]string{command, args}); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if command, args, err := CommandLine(nil, nil, nil); command != nil || args != nil || err != nil {
		t.Errorf("no command became %q %q, %v, which would override the image's", command, args, err)
	}
}

func TestFileValues(t *testing.T) {
	tests := []struct{ name, content, want, err string }{
		{"plain", "K='v'", "v", ""},
		{"first wins", "K='v'\nK='w'", "v", ""},
		{"blank lines and comments", "\n  \n# K='x'\n  K='v' # c\n", "v", ""},
		{"literal", `K='a"b\n$(X)'`, `a"b\n$(X)`, ""},
		{"several lines", "K='a\n# b\nc'", "a\n# b\nc", ""},
		{"windows", "K='v'\r\n", "v", ""},
		{"blank before the quote", "K= 'v'", "", ""},
		{"not there", "L='v'", "", ""},
		{"no quotes", "K=v", "", "line 1: value must be enclosed in single quotes"},
		{"no equals", "\nK", "", "line 2: missing '='"},
		{"no name", "='v'", "", "line 1: empty variable name"},
		{"blank after the name", "K ='v'", "", "line 1: white space before '='"},
		{"blank in another name", "export L='w'\nK='v'", "v", ""},
		{"windows without a last line feed", "K='v'\r", "v", ""},
		{"something after one of several lines", "L='v\nw'\nK", "", "line 3: missing '='"},
		{"open", "K='v\nw", "", "line 1: unclosed single quote"},
		{"something after", "L='v\nw'x", "", "line 2: unexpected content after the closing quote"},
	}
	for _, tt := range tests {
		values, err := FileValues([]byte(tt.content), map[string]bool{"K": true})
		if message := fmt.Sprint(err); values["K"] != tt.want || (err != nil || tt.err != "") && message != tt.err {
			t.Errorf("%s: %q, %v; want %q, %q", tt.name, values, err, tt.want, tt.err)
		}
	}
}
