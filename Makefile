# The front door. Each recipe is one command or a few; what they do is told by the programs themselves.

MUSL    := $(shell uname -m)-unknown-linux-musl
RELEASE := target/$(MUSL)/release
IMAGES  := target/images
CLUSTER := target/debug/testcluster

.PHONY: help demo test unit bench fuzz lint fmt image manifests cluster cluster-down deps kubernetes clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 16

demo: image kubernetes ## three real nodes pick up a private registry's password (KEEP=1: leave them running)
	cargo run -q -p globalps-tests --bin demo

test: unit image kubernetes ## every promise, unit tests first, then on real nodes
	cargo test -p globalps-tests --test '*'

unit: ## the tests that need neither root nor a cluster
	cargo test --workspace --lib --bins

bench: image kubernetes ## how fast a rotation is and how lean what runs, on three real nodes
	cargo run -q -p globalps-tests --bin bench
	cargo bench -q -p globalps-core

fuzz: deps ## CASES generated credentials files (a million), judged by the kubelet's and CRI-O's own code
	cargo run -q -p globalps-tests --bin fuzz -- --cases $(or $(CASES),1000000) --seed $(or $(SEED),1)

lint: ## formatting and clippy, warnings are errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings

fmt: ## format everything
	cargo fmt --all

image: deps ## two OCI archives in target/images, and the plugin in target/*-musl/release
	cargo build --release --locked --target $(MUSL) -p globalps-controller -p globalps-syncer
	cargo build --release --locked --target $(MUSL) -p kubectl-globalps # by itself, or the others get its features too
	mkdir -p $(IMAGES)
	cargo run -q -p globalps-tests --bin ociimage -- --binary $(RELEASE)/globalps-controller \
		--name globalps-controller --user 65532:65532 --output $(IMAGES)/globalps-controller.tar
	cargo run -q -p globalps-tests --bin ociimage -- --binary $(RELEASE)/globalps-syncer \
		--name globalps-syncer --user 0:0 --output $(IMAGES)/globalps-syncer.tar

manifests: ## write manifests/ from the builders
	UPDATE_MANIFESTS=1 cargo test -q -p globalps-core --lib the_committed_manifests

cluster: kubernetes ## a running cluster of three real nodes, its kubeconfig at target/cluster/kubeconfig
	$(CLUSTER) up

cluster-down: ## take it down, with all that it added to the machine
	cargo build -q -p globalps-tests --bin testcluster
	$(CLUSTER) down

kubernetes: deps
	$(CLUSTER) build

deps: # what the machine must have; installs it as root on Debian, else names it
	cargo build -q -p globalps-tests --bin testcluster
	$(CLUSTER) preflight --install

clean: ## what was built, but not a running cluster
	cargo clean
