// SPDX-License-Identifier: Apache-2.0

package pluginregistration

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/sextant-node/sextant/test/fuzzing"
)

// FuzzPluginOf: of an answer's bytes, a plugin with a name and an absolute endpoint or a
// short error.
func FuzzPluginOf(f *testing.F) {
	for _, info := range []*registration.PluginInfo{
		{Type: registration.CSIPlugin, Name: "a.example", Endpoint: "/x/a.sock", SupportedVersions: []string{"1.0.0"}},
		{Name: "a.example"}, {}, {Name: "a\nb", Endpoint: "/x"}, {Name: strings.Repeat("n", 300)}, {Name: "a", Endpoint: "x.sock"}, {Name: "a", Endpoint: "/x\x00"},
		{Name: "a", SupportedVersions: make([]string, 200)},
	} {
		raw, err := proto.Marshal(info)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte("\xff"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		fuzzing.Allocates(t, 512<<10+100*uint64(len(raw)), func() {
			fuzzing.Spends(t, time.Second, func() {
				info := &registration.PluginInfo{}
				if proto.Unmarshal(raw, info) != nil {
					return
				}
				p, err := pluginOf(info, "/registry/a-reg.sock")
				switch {
				case err != nil && (p != nil || len(err.Error()) > 2048):
					t.Errorf("%+v, an error of %d bytes", p, len(err.Error()))
				case err == nil && (p.Name == "" || strings.ContainsAny(p.Name+p.Endpoint, "\x00\n\x1b") || !filepath.IsAbs(p.Endpoint) || len(p.Versions) > mostVersions):
					t.Errorf("%+v", p)
				}
			})
		})
	})
}
