// SPDX-License-Identifier: Apache-2.0

package preempt_test

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sextant-node/sextant/services/resource/internal/admit"
	"github.com/sextant-node/sextant/services/resource/internal/preempt"
)

var update = flag.Bool("update", false, "write the answers as they are now")

// TestVictims replays testdata/victims.txt: cases that are apart by empty lines. In a case
//
//	# ...                                  says what it shows
//	critical, priority N                   the pod that is to be admitted
//	NAME [guaranteed] RESOURCE=QUANTITY... [priority=N] [critical]
//	                                       a pod that runs, with its requests
//	short RESOURCE=AMOUNT...               what is missing, CPU in thousandths
//	= ...                                  the victims in their order, or the error
func TestVictims(t *testing.T) {
	const file = "testdata/victims.txt"
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var now []string
	for _, text := range strings.Split(strings.TrimSpace(string(data)), "\n\n") {
		asked, want, ok := strings.Cut(text, "\n= ")
		if !ok {
			t.Fatalf("no answer: %s", text)
		}
		got := answer(t, asked)
		if now = append(now, asked+"\n= "+got); got != want && !*update {
			t.Errorf("%s\ngot:  %s\nwant: %s", asked, got, want)
		}
	}
	if len(now) < 10 {
		t.Errorf("%d cases", len(now))
	}
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(now, "\n\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func answer(t *testing.T, text string) string {
	t.Helper()
	asking := &v1.Pod{}
	var running []*v1.Pod
	var short []admit.Shortage
	for _, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		switch words[0] {
		case "#":
		case "critical":
			asking.Spec.Priority = number(t, "2000000000")
		case "priority":
			asking.Spec.Priority = number(t, words[1])
		case "short":
			for _, word := range words[1:] {
				name, amount, _ := strings.Cut(word, "=")
				n, err := strconv.ParseInt(amount, 10, 64)
				if err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				short = append(short, admit.Shortage{Name: v1.ResourceName(name), Amount: n})
			}
		default:
			running = append(running, parse(t, words))
		}
	}
	victims, err := preempt.Victims(asking, running, short)
	if err != nil {
		return "error " + err.Error()
	}
	names := []string{}
	for _, v := range victims {
		names = append(names, v.Name)
	}
	return fmt.Sprint(names)
}

func number(t *testing.T, text string) *int32 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	short := int32(n)
	return &short
}

func parse(t *testing.T, words []string) *v1.Pod {
	t.Helper()
	p := &v1.Pod{}
	p.Name, p.UID = words[0], types.UID(words[0])
	requests, guaranteed := v1.ResourceList{}, false
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "guaranteed":
			guaranteed = true
		case "critical":
			p.Spec.Priority = number(t, "2000000000")
		case "priority":
			p.Spec.Priority = number(t, value)
		default:
			requests[v1.ResourceName(key)] = resource.MustParse(value)
		}
	}
	c := v1.Container{Name: "c", Resources: v1.ResourceRequirements{Requests: requests}}
	if guaranteed {
		c.Resources.Limits = requests
	}
	p.Spec.Containers = []v1.Container{c}
	return p
}
