// SPDX-License-Identifier: Apache-2.0

package prober

import (
	"context"
	"net"
)

// beyond are addresses that no node has (RFC 5737, RFC 3849): the way to them is the
// default route's.
var beyond = []string{"203.0.113.1:9", "[2001:db8::1]:9"}

// ownAddress is the node's on its default route, of IPv6 where there is none of IPv4, and
// loopback without either. It is that of pods on the host's network until the API server
// has their status, and for good on a node without one.
func ownAddress(ctx context.Context) string {
	for _, to := range beyond {
		conn, err := (&net.Dialer{}).DialContext(ctx, "udp", to) // sends nothing
		if err != nil {
			continue
		}
		own := conn.LocalAddr().(*net.UDPAddr).IP
		_ = conn.Close()
		if own.IsGlobalUnicast() {
			return own.String()
		}
	}
	return "127.0.0.1"
}
