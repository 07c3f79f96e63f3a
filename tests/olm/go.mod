module globalps.io/tests/olm

go 1.26

require github.com/operator-framework/api v0.31.0
