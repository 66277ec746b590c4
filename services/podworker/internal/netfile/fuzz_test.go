// SPDX-License-Identifier: Apache-2.0

package netfile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/sextant-node/sextant/test/fuzzing"
)

// FuzzParseResolv: what is read, written again, is read the same, and a pod of any policy
// gets no more than resolvers read.
func FuzzParseResolv(f *testing.F) {
	for _, s := range []string{
		"", "# c\nnameserver 192.0.2.2 x\n nameserver fd00::1\r\n", "nameserver\n", "search a. .\nsearch corp.example lan\n", "search " + strings.Repeat("a ", 40),
		"options ndots:1 rotate\noptions ndots:2 :5 : a:b:c\nsortlist x\n", "options " + strings.Repeat("a b:c ", 40), "\x00\xff\u2028nameserver a",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		var r Resolv
		var err error
		fuzzing.Allocates(t, 512<<10+200*uint64(len(content)), func() {
			fuzzing.Spends(t, time.Second, func() { r, err = ParseResolv(content) })
		})
		var written strings.Builder
		for _, s := range r.Nameservers {
			fmt.Fprintln(&written, "nameserver", s)
		}
		fmt.Fprintln(&written, "search", strings.Join(r.Searches, " "))
		fmt.Fprintln(&written, "options", strings.Join(r.Options, " "))
		again, failed := ParseResolv([]byte(written.String()))
		if failed != nil || !slices.Equal(again.Nameservers, r.Nameservers) || !slices.Equal(again.Options, r.Options) {
			t.Errorf("%q became %q, %v", r, again, failed)
		}
		names := map[string]bool{}
		for _, o := range r.Options {
			name, _, _ := strings.Cut(o, ":")
			if name == "" || names[name] {
				t.Errorf("option %q twice, or without a name, of %q", name, content)
			}
			names[name] = true
		}
		if err != nil {
			return
		}
		for _, policy := range []v1.DNSPolicy{v1.DNSDefault, v1.DNSClusterFirst, v1.DNSNone} {
			got, _ := DNS(&v1.Pod{Spec: v1.PodSpec{DNSPolicy: policy}}, DNSInput{ClusterDNS: []string{"192.0.2.10"}, ClusterDomain: "cluster.local", Resolv: &r})
			if len(got.Servers) > MaxNameservers || len(got.Searches) > MaxSearchPaths || len(strings.Join(got.Searches, " ")) > MaxSearchListChars {
				t.Errorf("%s: %d servers, %d searches", policy, len(got.Servers), len(got.Searches))
			}
		}
	})
}

// TestParseResolvTakesTimeInProportion: with the longest file that is read.
func TestParseResolvTakesTimeInProportion(t *testing.T) {
	var options, names strings.Builder
	for i := range MaxResolvConf / 20 {
		fmt.Fprintf(&options, "options o%07d:1\n", i)
	}
	names.WriteString("search")
	for i := range MaxResolvConf / 9 {
		fmt.Fprintf(&names, " s%07d", i)
	}
	for name, content := range map[string]string{"options": options.String(), "searches": names.String()[:MaxResolvConf-100]} {
		fuzzing.Spends(t, 10*time.Second, func() {
			if r, err := ParseResolv([]byte(content)); err != nil || len(r.Options)+len(r.Searches) < MaxResolvConf/20 {
				t.Errorf("%s: %d options, %d searches, %v", name, len(r.Options), len(r.Searches), err)
			}
		})
	}
}
