// SPDX-License-Identifier: Apache-2.0

// Command mutants breaks the program on purpose, one promise at a time, and looks
// whether the tests of the package notice.
//
//	go run ./test/mutants [-run REGEXP] [-parallel N] [-timeout D] [-out FILE]
//
// A mutant is a change of one file that keeps it compiling but breaks a promise. The
// files *.txt beside this one list them:
//
//	=== NAME
//	The promise that is broken, in a line or two.
//	file: services/podworker/turn.go
//	test: ./services/podworker
//	--- old
//	text that the file has exactly once
//	--- new
//	the text in its place
//
// Several pairs of old and new are replaced one after the other. "test:" are the
// arguments of go test: the whole package, unless that takes more than a minute.
//
// The working tree stays as it is: go test takes the changed file by -overlay. The
// command fails when a mutant survives, and when one is invalid: it does not compile, the
// old text is not there exactly once, tests fail without it, or no test fails but the time
// limit ends them.
package main
