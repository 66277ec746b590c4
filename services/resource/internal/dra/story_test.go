// SPDX-License-Identifier: Apache-2.0

package dra

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/test/stories"
)

// TestStories replays testdata/*.txtar: which drivers are called for which claims as pods
// come and go. The commands are:
//
//	join POD CLAIM=UID:DRIVER[,DRIVER] ...   a pod comes that may use these claims
//	prepared DRIVER CLAIM DEVICE ...         a driver has answered
//	unprepared DRIVER CLAIM
//	leave POD                                its containers are gone
//	boot ID                                  the node has booted
//	kubelet                                  a kubelet took over, and gave back
func TestStories(t *testing.T) {
	stories.Replay(t, 5, func(t *testing.T, a *txtar.Archive) string {
		s := story{TB: t, claims: map[string]*Claim{}, boot: "b1"}
		for line := range strings.Lines(string(stories.Part(a, "story"))) {
			s.do(strings.Fields(line))
		}
		return s.out.String()
	})
}

type story struct {
	testing.TB
	claims map[string]*Claim
	boot   string
	out    strings.Builder
}

func (s *story) do(words []string) {
	fmt.Fprintln(&s.out, ">", strings.Join(words, " "))
	switch words[0] {
	case "join":
		var wants []wanted
		for _, w := range words[2:] {
			name, rest, _ := strings.Cut(w, "=")
			uid, drivers, _ := strings.Cut(rest, ":")
			wants = append(wants, wanted{types.UID(uid), "ns", name, strings.Split(drivers, ",")})
		}
		next, calls, err := join(words[1], wants, s.claims, s.boot)
		if err != nil {
			fmt.Fprintln(&s.out, "  error:", err)
		}
		s.calls("prepare", calls)
		s.put(next...)
	case "leave":
		shared, last, calls := leave(words[1], s.claims)
		s.calls("unprepare", calls)
		s.put(slices.Concat(shared, last)...)
		s.forget()
	case "prepared", "unprepared":
		c := s.claims["ns/"+words[2]].clone()
		c.Drivers[words[1]] = Driver{Stage: none}
		if words[0] == "prepared" {
			c.Drivers[words[1]] = Driver{Stage: prepared, Boot: s.boot, Devices: []Device{{CDIDeviceIDs: words[3:]}}}
		}
		s.put(c)
		if words[0] == "unprepared" {
			s.forget()
		}
	case "boot":
		s.boot = words[1]
		for _, c := range s.claims {
			s.put(anotherBoot(c.clone(), s.boot))
		}
	case "kubelet":
		text, _, err := encode(s.claims)
		if err == nil {
			s.claims, _, err = decode(text)
		}
		if err != nil {
			s.Fatal(err)
		}
	default:
		s.Fatalf("no such command: %s", words[0])
	}
	for _, k := range slices.Sorted(maps.Keys(s.claims)) {
		c := s.claims[k]
		fmt.Fprintf(&s.out, "  %s %s pods %v", c.Name, c.UID, c.Pods)
		for _, name := range c.drivers() {
			d := c.Drivers[name]
			fmt.Fprintf(&s.out, " %s %s", name, d.Stage)
			for _, device := range d.Devices {
				fmt.Fprint(&s.out, device.CDIDeviceIDs)
			}
		}
		fmt.Fprintln(&s.out, map[bool]string{true: ": ready"}[c.ready(s.boot)])
	}
}

func (s *story) calls(what string, calls map[string][]*Claim) {
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		fmt.Fprint(&s.out, "  ", what, " ", name)
		for _, c := range calls[name] {
			fmt.Fprint(&s.out, " ", c.Name)
		}
		fmt.Fprintln(&s.out)
	}
}

func (s *story) put(claims ...*Claim) {
	for _, c := range claims {
		s.claims[c.key()] = c
	}
}

// forget drops what no driver holds anything for; the last pod stays until then.
func (s *story) forget() {
	maps.DeleteFunc(s.claims, func(_ string, c *Claim) bool { return c.unheld() })
}
