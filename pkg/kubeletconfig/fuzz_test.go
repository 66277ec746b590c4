// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"bytes"
	"strings"
	"testing"
	"testing/fstest"
)

// Whatever is in the files, Load does not panic; an error names a file, a flag
// or a default; and a configuration survives its JSON form.
func FuzzLoad(f *testing.F) {
	for _, tc := range invalidCases {
		f.Add([]byte(head+tc.in), []byte(head+"maxPods: 5\n"))
	}
	f.Add([]byte(`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","maxPods":5}`), []byte(head+"authentication: null\n"))
	f.Add([]byte(head+"systemReserved: &r {cpu: 100m}\nkubeReserved: *r\n"), []byte(head+"clusterDNS: [null]\n"))
	f.Add([]byte(head+"evictionHard: {<<: {memory.available: 5%}}\n"), []byte("a: &a [*a]\n"))
	f.Add([]byte("- - - -"), []byte("\x00\xff"))
	flags, err := ParseFlags(withAPI("--config=/config.yaml", "--config-dir=/conf.d"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, config, dropIn []byte) {
		c, _, err := Load(flags, Inputs{Hostname: "h", Files: fstest.MapFS{
			"config.yaml":   &fstest.MapFile{Data: config},
			"conf.d/x.conf": &fstest.MapFile{Data: dropIn},
		}})
		if err != nil {
			if c != nil {
				t.Error("a configuration in spite of an error")
			}
			problems := Problems(err)
			if len(problems) == 0 {
				t.Errorf("an error without problems: %v", err)
			}
			for _, p := range problems {
				if s := p.Source.String(); !strings.HasPrefix(s, "/config.yaml") && !strings.HasPrefix(s, "/conf.d/x.conf") && (s != "default" || p.Field == "") {
					t.Errorf("problem without a place: %v", p)
				}
			}
			return
		}
		raw, err := c.Marshal()
		if err != nil {
			t.Fatalf("marshal: %v", err)
		}
		again, err := Unmarshal(raw)
		if err != nil {
			t.Fatalf("unmarshal: %v\n%s", err, raw)
		}
		if d := Changes(c, again); len(d) > 0 {
			t.Errorf("changed by the round trip: %v", d)
		}
	})
}

// Flags are no different.
func FuzzParseFlags(f *testing.F) {
	for _, seed := range []string{"--max-pods=5", "--reserved-memory=0:memory=1Gi;1:x=y", "--register-with-taints=a=b:c,", "--vmodule=a=1,b", "-v=3", "--node-labels==,a", "--manifest-url-header=:", "--eviction-hard=<", "--node-ip=,", "--cpu-manager-policy-options=a=b\n--max-pods=1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, args string) {
		flags, err := ParseFlags(strings.Split(args, "\n"))
		if err != nil {
			return
		}
		files := fstest.MapFS{}
		one, _, err1 := Load(flags, Inputs{Files: files, Hostname: "h"})
		two, _, err2 := Load(flags, Inputs{Files: files, Hostname: "h"})
		if (err1 == nil) != (err2 == nil) {
			t.Fatalf("loads differ: %v and %v", err1, err2)
		}
		if err1 != nil {
			return
		}
		a, err := one.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		b, err := two.Marshal()
		if err != nil || !bytes.Equal(a, b) {
			t.Errorf("loads differ (%v):\n%s\n%s", err, a, b)
		}
	})
}
