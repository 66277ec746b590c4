// SPDX-License-Identifier: Apache-2.0

// Package chains keeps the chains of iptables that a kubelet v1.36 keeps for the sake of
// others (makeIPTablesUtilChains), in IPv4 and IPv6 as far as the node has either:
//
//   - KUBE-IPTABLES-HINT in the table mangle. Programs in containers see by it whether
//     the node uses iptables-legacy or iptables-nft (KEP-3178).
//   - KUBE-FIREWALL in the table filter, IPv4 only. Its one rule drops packets from other
//     machines to 127.0.0.0/8, which kube-proxy's route_localnet would let in; kube-proxy
//     keeps the same rule.
//   - KUBE-KUBELET-CANARY in mangle, nat and filter. When it is gone, another program has flushed
//     the rules, and the others are made again; it is looked at once a minute.
//
// The host's own program is used, for it decides between legacy and nft. The chains stay
// when the node's agent ends, as a kubelet's do.
package chains
