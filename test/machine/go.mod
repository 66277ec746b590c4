module github.com/sextant-node/sextant/test/machine

go 1.26.0
