// Package statusv1 is the contract of status: what the API server was told. Its
// feeds are listed in status.proto; the code beside that file is generated from it.
package statusv1
