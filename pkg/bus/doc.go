// SPDX-License-Identifier: Apache-2.0

// Package bus is the node's announcement bus: NATS on loopback, one NKey per
// service, and subjects limited to what the house table says.
//
// A client never fails for want of a bus. While it is gone Connected is false,
// announcements are dropped, and replicas poll; when it is back, every listener pulls
// once. Only the keys are durable: the bus owns no fact.
package bus
