// SPDX-License-Identifier: Apache-2.0

// Package service is the common part of every process of the node: it starts, answers
// Hello, serves its feeds, metrics and profiles, and stops.
//
// A Kit is one process. Its constructor starts nothing; Run lives until the
// context ends or a task fails, and the first failure stops all the others with
// that cause, within one grace limit. The only stop that must work is kill -9.
//
// Nothing here waits for a neighbour: a kit is up when its own socket answers, and
// reports in Hello what it still waits for.
package service
