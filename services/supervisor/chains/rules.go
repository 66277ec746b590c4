// SPDX-License-Identifier: Apache-2.0

package chains

// Family is one family of addresses and its program.
type Family struct{ Protocol, Program string }

// Families that there are.
var Families = []Family{{"IPv4", "iptables"}, {"IPv6", "ip6tables"}}

const (
	hint     = "KUBE-IPTABLES-HINT"
	canary   = "KUBE-KUBELET-CANARY"
	firewall = "KUBE-FIREWALL"
)

// watched are the tables with the canary; the first is looked at.
var watched = []string{"mangle", "nat", "filter"}

// chain is a chain of a table.
type chain struct{ table, name string }

// rule is a rule of a chain. How it is added: -I puts it first, -A last.
type rule struct {
	chain
	how  string
	args []string
}

// wanted are a family's chains and rules, in the order in which they are made.
func wanted(f Family) (chains []chain, rules []rule) {
	chains = []chain{{"mangle", hint}}
	if f.Protocol != "IPv4" {
		return chains, nil
	}
	own := chain{"filter", firewall}
	return append(chains, own), []rule{
		{chain{"filter", "OUTPUT"}, "-I", []string{"-j", firewall}},
		{chain{"filter", "INPUT"}, "-I", []string{"-j", firewall}},
		{own, "-A", []string{
			"-m", "comment", "--comment", "block incoming localnet connections", "--dst", "127.0.0.0/8", "!", "--src", "127.0.0.0/8",
			"-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP",
		}},
	}
}

// Arguments of the program. Each waits five seconds for the lock of others.
func arguments(operation string, c chain, rest ...string) []string {
	return append([]string{"-w", "5", operation, c.name, "-t", c.table}, rest...)
}

// Codes with which the program ends.
const (
	done = 0
	// refused: a chain to be made exists, one to be listed or a rule does not.
	refused = 1
	// busy: the lock or the kernel was not to be had; nothing is known.
	busy = 4
)
