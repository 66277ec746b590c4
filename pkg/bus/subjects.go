// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"cmp"
	"strings"

	"github.com/sextant-node/sextant/pkg/house"
)

const prefix = "sextant.v1."

// longKey bounds a key on the bus, in bytes. Some hold what a pod's author wrote, and with a
// line of more than MaxControlLine the server ends the connection. Who looks takes the
// whole key from the feed.
const longKey = 1024

// subject is where a change of one key is announced.
func subject(feed, key string) string {
	return prefix + feed + "." + token(cmp.Or(key, "_"))
}

// token makes one NATS subject token of any key.
func token(key string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '.', '*', '>', ' ', '\t', '\n', '\r':
			return '_'
		}
		return r
	}, key)
}

// HelloSubject is where a service's heartbeat appears.
func HelloSubject(s house.Service) string { return prefix + string(s) + ".hello" }

// Publishes lists the subjects a service may publish to.
func Publishes(s house.Service) []string {
	if s == house.Operator {
		return nil
	}
	return []string{prefix + string(s) + ".>"}
}

// Subscribes lists the subjects a service may subscribe to: the feeds it reads
// and everybody's hello. The operator may follow all; an announcement carries
// no state.
func Subscribes(s house.Service) []string {
	if s == house.Operator {
		return []string{prefix + ">"}
	}
	subjects := []string{prefix + "*.hello"}
	for _, feed := range house.Reads(s) {
		subjects = append(subjects, prefix+feed+".>")
	}
	return subjects
}
