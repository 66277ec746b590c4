// Package service is the body every process of the node shares: it starts,
// says who it is, serves its feeds, shows its metrics and profiles, and stops.
//
// A Kit is one process. Its constructor starts nothing; Run lives until the
// context ends or a task fails, and the first failure stops all the others with
// that cause, within one grace limit. The only stop that must work is kill -9.
//
// Nothing here waits for a neighbour: a kit is up when its own socket answers,
// and tells over Hello what it still waits for.
package service
