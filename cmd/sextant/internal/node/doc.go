// Package node runs the services of one node as processes of the operating
// system where systemd does not: it lays out folders, gives each service a uid
// of its own and the rights of the house table, starts them, and starts again
// what ends.
//
// It owns the run directory's plan (node.json), the identities and the bus
// keys, and nothing of what the services do. The supervisor is not needed for
// anything to go on: when it dies the services stay, and the next `sextant up`
// replaces them, which no pod notices.
package node
