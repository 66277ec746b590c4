// SPDX-License-Identifier: Apache-2.0

// Package probe carries out one probe: HTTP, TCP, gRPC or exec. It holds no
// state; what a result means is decided in package schedule.
package probe

import (
	"fmt"
	"strconv"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/sextant-node/sextant/pkg/wire"
	"github.com/sextant-node/sextant/services/prober/internal/schedule"
)

// Subject is what a probe is run against.
type Subject struct {
	ContainerID string
	// Container as in the pod's spec, for the names of its ports.
	Container *v1.Container
	// PodIP is where network probes go unless they name a host.
	PodIP string
}

// Outcome of one probe.
type Outcome struct {
	Result schedule.Result
	// Message is the output or the error. This and the other texts may be the
	// container's own words: they are UTF-8 and at most 10 KiB.
	Message string
	// Warning is set when a success is odd (event ProbeWarning).
	Warning string
	// Error is why a probe could not be carried out although the runtime was there
	// (event Unhealthy); the result is Unknown then.
	Error string
}

// Prober runs probes.
type Prober struct {
	// Runtime is the broker, for exec probes.
	Runtime runtimeapi.RuntimeServiceClient
	// UserAgent of HTTP and gRPC probes, "kube-probe/<major>.<minor>".
	UserAgent string
	// Slack is how much longer than the probe's timeout an exec call may take, two
	// minutes when zero as with the kubelet: the runtime enforces the timeout
	// itself, and takes its time to clean up.
	Slack time.Duration
}

func failed(format string, args ...any) Outcome {
	return Outcome{Result: schedule.Failure, Message: fmt.Sprintf(format, args...)}
}

func errored(err error) Outcome {
	return Outcome{Result: schedule.Unknown, Message: err.Error(), Error: err.Error()}
}

// text makes a message of what a container, or a server in it, may have said.
func text(s string) string {
	return cut(wire.Text(cut(s))) // what replaces bytes that are none may be longer than those
}

// cut is at most maxBody bytes, and ends with a whole character.
func cut(s string) string {
	if len(s) <= maxBody {
		return s
	}
	end := maxBody
	for end > maxBody-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// portOf resolves a port by number or by the name of a container's port.
func portOf(port intstr.IntOrString, c *v1.Container) (int, error) {
	n := port.IntValue()
	if port.Type == intstr.String {
		found := false
		for _, have := range c.Ports {
			if have.Name == port.StrVal {
				n, found = int(have.ContainerPort), true
				break
			}
		}
		if !found {
			parsed, err := strconv.Atoi(port.StrVal)
			if err != nil {
				return 0, fmt.Errorf("container %s has no port named %q", c.Name, port.StrVal)
			}
			n = parsed
		}
	}
	if n < 1 || n > 65535 {
		return 0, fmt.Errorf("port %d is not between 1 and 65535", n)
	}
	return n, nil
}

// namedHost is where a network probe goes instead of the pod, or empty.
func namedHost(spec v1.Probe) string {
	switch {
	case spec.HTTPGet != nil:
		return spec.HTTPGet.Host
	case spec.TCPSocket != nil:
		return spec.TCPSocket.Host
	}
	return ""
}

// maxBody is how many bytes of an answer are kept.
const maxBody = 10 << 10

// maxHeader bounds the headers of an answer, and an answer by gRPC, in bytes. Hundreds of
// probes run at a time, in a process with bounded memory, and whoever made the pods chooses
// what they answer: the libraries would take megabytes of each.
const maxHeader = 64 << 10
