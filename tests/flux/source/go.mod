module globalps.io/tests/flux/source

go 1.26

require github.com/fluxcd/source-controller v1.9.6
