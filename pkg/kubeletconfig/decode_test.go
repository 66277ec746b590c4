// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

// Each input yields exactly these problems; the file is named c.yaml.
func TestDecodeProblems(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     []string
	}{
		{"empty", "", []string{"c.yaml: the file is empty"}},
		{"blank", " \n\n", []string{"c.yaml: the file is empty"}},
		{"comment only", "# nothing\n", []string{"c.yaml: the file holds no document"}},
		{"scalar", "hello\n", []string{`c.yaml:1: must be a mapping of fields, is "hello"`}},
		{"list", "- a\n", []string{"c.yaml:1: must be a mapping of fields, is a list"}},
		{"null", "null\n", []string{"c.yaml:1: must be a mapping of fields, is null"}},
		{"tab", "kind: x\n\tmaxPods: 5\n", []string{"c.yaml:2: found a tab character that violates indentation"}},
		{"unclosed", head + "clusterDNS: [1.1.1.1\n", []string{"c.yaml:3: did not find expected ',' or ']'"}},
		{"bad indentation", head + "authentication:\n    x509: {}\n  webhook: {}\n", []string{"c.yaml:5: did not find expected key"}},
		{"unclosed quote", head + "clusterDomain: \"a\nmaxPods: 1\n", []string{"c.yaml:3: found unexpected end of stream"}},
		{"unknown alias", head + "maxPods: *x\n", []string{"c.yaml: unknown anchor 'x' referenced"}},
		{"no type", "maxPods: 5\n", []string{
			"c.yaml:1: apiVersion: is missing; must be kubelet.config.k8s.io/v1beta1",
			"c.yaml:1: kind: is missing; must be KubeletConfiguration",
		}},
		{"wrong version", "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1\n", []string{
			`c.yaml:2: apiVersion: is "kubelet.config.k8s.io/v1"; must be kubelet.config.k8s.io/v1beta1`}},
		{"wrong kind", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: Pod\n", []string{
			`c.yaml:2: kind: is "Pod"; must be KubeletConfiguration`}},
		{"string for number", head + "maxPods: \"5\"\n", []string{`c.yaml:3: maxPods: must be a whole number of 32 bits, is "5"`}},
		{"fraction for number", head + "maxPods: 5.5\n", []string{"c.yaml:3: maxPods: must be a whole number of 32 bits, is 5.5"}},
		{"too large", head + "maxPods: 2147483648\n", []string{"c.yaml:3: maxPods: must be a whole number of 32 bits, is 2147483648"}},
		{"negative verbosity", head + "logging:\n  verbosity: -1\n", []string{
			"c.yaml:4: logging.verbosity: must be a whole number of 32 bits, not negative, is -1"}},
		{"number for string", head + "clusterDomain: 5\n", []string{"c.yaml:3: clusterDomain: must be a string, is 5"}},
		{"bool for string", head + "clusterDomain: yes\n", []string{"c.yaml:3: clusterDomain: must be a string, is true"}},
		{"string for bool", head + "enableServer: \"true\"\n", []string{`c.yaml:3: enableServer: must be true or false, is "true"`}},
		{"string for float", head + "memoryThrottlingFactor: high\n", []string{`c.yaml:3: memoryThrottlingFactor: must be a number, is "high"`}},
		{"number for duration", head + "syncFrequency: 60\n", []string{
			`c.yaml:3: syncFrequency: must be a duration such as "90s" or "1h30m", is 60`}},
		{"bad duration", head + "syncFrequency: 1 minute\n", []string{
			`c.yaml:3: syncFrequency: must be a duration such as "90s" or "1h30m", is "1 minute"`}},
		{"scalar for list", head + "clusterDNS: 10.0.0.10\n", []string{`c.yaml:3: clusterDNS: must be a list, is "10.0.0.10"`}},
		{"list for map", head + "evictionHard: [a]\n", []string{"c.yaml:3: evictionHard: must be a mapping, is a list"}},
		{"scalar for struct", head + "authentication: on\n", []string{"c.yaml:3: authentication: must be a mapping, is true"}},
		{"number in a string map", head + "evictionHard:\n  memory.available: 100\n", []string{
			"c.yaml:4: evictionHard[memory.available]: must be a string, is 100"}},
		{"map in a list", head + "clusterDNS:\n- 1.1.1.1\n- {a: b}\n", []string{"c.yaml:5: clusterDNS[1]: must be a string, is a mapping"}},
		{"bad quantity", head + "reservedMemory:\n- numaNode: 0\n  limits: {memory: lots}\n", []string{
			`c.yaml:5: reservedMemory[0].limits[memory]: must be a quantity such as 200m or 1Gi, is "lots"`}},
		// Expanding this exponent would take the parser hours.
		{"endless quantity", head + "reservedMemory:\n- numaNode: 0\n  limits: {memory: \"1e-999999999\"}\n", []string{
			`c.yaml:5: reservedMemory[0].limits[memory]: must be a quantity such as 200m or 1Gi, is "1e-999999999"`}},
		{"second document", head + "---\n" + head, []string{"c.yaml:4: a second document; one file holds one configuration"}},
		{"all at once", head + "maxPods: x\nportt: 1\nclusterDNS: {}\n", []string{
			`c.yaml:3: maxPods: must be a whole number of 32 bits, is "x"`,
			"c.yaml:5: clusterDNS: must be a list, is a mapping",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			doc, problems := decodeFile("c.yaml", []byte(tc.in))
			if doc != nil {
				t.Error("a document in spite of problems")
			}
			var got []string
			for _, p := range problems {
				got = append(got, p.Error())
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("problems (-want +got):\n%s", d)
			}
		})
	}
}

// What a kubelet passes over with a warning (lenient decoding of v1beta1) is passed over
// with a warning that says where it stands.
func TestDecodeIgnores(t *testing.T) {
	for _, tc := range []struct {
		name, in string
		want     []string
	}{
		{"unknown field", head + "maxPodz: 5\n", []string{"c.yaml:3: maxPodz: unknown field, ignored"}},
		{"unknown nested field", head + "authentication:\n  anonymous:\n    enable: true\n", []string{
			"c.yaml:5: authentication.anonymous.enable: unknown field, ignored"}},
		{"unknown field in a list", head + "registerWithTaints:\n- key: a\n  effekt: NoSchedule\n", []string{
			"c.yaml:5: registerWithTaints[0].effekt: unknown field, ignored"}},
		{"wrong case", head + "MaxPods: 5\n", []string{"c.yaml:3: MaxPods: unknown field, ignored; did you mean maxPods?"}},
		{"duplicate", head + "maxPods: 5\nport: 1\nmaxPods: 6\n", []string{
			"c.yaml:5: maxPods: duplicate field, first set in line 3; the last one counts"}},
		{"duplicate in a map", head + "evictionHard:\n  memory.available: 5%\n  memory.available: 6%\n", []string{
			"c.yaml:5: evictionHard[memory.available]: duplicate field, first set in line 4; the last one counts"}},
		{"duplicate in JSON", `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","port":1,"port":2}`, []string{
			"c.yaml:1: port: duplicate field, first set in line 1; the last one counts"}},
		{"unknown field with all kinds of values", head + "futureOnes:\n- {a: [1, x], b: null}\nmaxPods: 5\n", []string{
			"c.yaml:3: futureOnes: unknown field, ignored"}},
		{"in a field that a drop-in removes", head + "authentication: ~\nfutureOne: ~\n", []string{"c.yaml:4: futureOne: unknown field, ignored"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			doc, problems := decodeFile("c.yaml", []byte(tc.in))
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			var got []string
			for _, w := range doc.ignored {
				got = append(got, w.String())
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("warnings (-want +got):\n%s", d)
			}
			if _, err := decodeJSON(doc.json); err != nil {
				t.Errorf("what is left does not decode strictly: %v", err)
			}
		})
	}
}

// TestIgnoredFieldsLeaveTheOthersAlone: the fields beside one that is ignored count, the
// last of two counts, and large numbers are what they were.
func TestIgnoredFieldsLeaveTheOthersAlone(t *testing.T) {
	c, warnings := setup{args: withAPI(), config: new("frobnicate: 1\nmaxPods: 7\nmaxOpenFiles: 9007199254740993\nmaxPods: 8\n")}.mustLoad(t)
	if c.Kubelet.MaxPods != 8 || c.Kubelet.MaxOpenFiles != 9007199254740993 {
		t.Errorf("maxPods %d, maxOpenFiles %d", c.Kubelet.MaxPods, c.Kubelet.MaxOpenFiles)
	}
	if got := c.Origins.Of("maxPods").String(); got != "/etc/kubelet/config.yaml:6" {
		t.Errorf("maxPods comes from %s", got)
	}
	if !slices.ContainsFunc(warnings, func(w Warning) bool {
		return w.Kind == NotHonoured && w.String() == "/etc/kubelet/config.yaml:3: frobnicate: unknown field, ignored"
	}) {
		t.Errorf("warnings %v", warnings)
	}
}

func TestDecodeAccepts(t *testing.T) {
	for name, in := range map[string]string{
		"JSON":                   `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":5}`,
		"null fields":            head + "maxPods: null\nauthentication: ~\nclusterDNS:\n",
		"anchors":                head + "systemReserved: &r {cpu: 100m}\nkubeReserved: *r\n",
		"merge keys":             head + "systemReserved: &r {cpu: 100m}\nkubeReserved:\n  <<: *r\n  memory: 1Gi\n",
		"leading document mark":  "---\n" + head + "maxPods: 5\n",
		"trailing document mark": head + "maxPods: 5\n---\n",
		"byte order mark":        "\ufeff" + head + "maxPods: 5\n",
		"windows line ends":      strings.ReplaceAll(head+"maxPods: 5\n", "\n", "\r\n"),
	} {
		if _, problems := decodeFile("c.yaml", []byte(in)); len(problems) > 0 {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

func TestMergedAnchorsHaveTheirValues(t *testing.T) {
	c, _ := setup{args: withAPI(), config: new("systemReserved: &r {cpu: 100m}\nkubeReserved:\n  <<: *r\n  memory: 1Gi\n")}.mustLoad(t)
	if d := cmp.Diff(map[string]string{"cpu": "100m", "memory": "1Gi"}, c.Kubelet.KubeReserved); d != "" {
		t.Error(d)
	}
}

// A file that cannot be read yields one problem that names it.
func TestUnreadableFiles(t *testing.T) {
	files := fstest.MapFS{
		"dir":             {Mode: dirMode},
		"pipe":            {Mode: 0o644 | pipeMode},
		"large.yaml":      {Data: []byte(head + "#" + strings.Repeat("x", maxFileSize))},
		"conf.d":          {Mode: dirMode},
		"conf.d/a.conf/x": {Data: []byte("")},
		"file":            {Data: []byte(head)},
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"--config=/missing.yaml"}, "/missing.yaml: file does not exist"},
		{[]string{"--config=missing.yaml"}, "/cwd/missing.yaml: file does not exist"},
		{[]string{"--config=/dir"}, "/dir: is a directory"},
		{[]string{"--config=/"}, "/: is a directory"},
		{[]string{"--config=/pipe"}, "/pipe: is not a regular file (p---------)"},
		{[]string{"--config=/large.yaml"}, "/large.yaml: is larger than 1048576 bytes"},
		{[]string{"--config-dir=/missing"}, "/missing: --config-dir: file does not exist"},
		{[]string{"--config-dir=/file"}, "/file: --config-dir: is not a directory"},
	} {
		f, err := ParseFlags(tc.args)
		if err != nil {
			t.Fatal(err)
		}
		c, _, err := Load(f, Inputs{Files: files, WorkDir: "/cwd", Hostname: "h"})
		if d := cmp.Diff([]string{tc.want}, problemLines(err)); d != "" || c != nil {
			t.Errorf("%v (-want +got):\n%s", tc.args, d)
		}
	}
}
