module globalps.io/tests/external-secrets

go 1.26

require github.com/external-secrets/external-secrets v0.20.4
