# The front door. Each recipe is one command or a few; what they do is told by the programs themselves.

MUSL    := $(shell uname -m)-unknown-linux-musl
RELEASE := target/$(MUSL)/release
IMAGES  := target/images
# Beside this machine's own; linked by zig. Those of macOS need Apple's SDK, whose folder SDKROOT names.
FOREIGN := aarch64-unknown-linux-musl x86_64-pc-windows-gnu $(if $(SDKROOT),x86_64-apple-darwin aarch64-apple-darwin)
TOOLS   := target/tools
CLUSTER := target/debug/testcluster

HOST    := $(shell rustc -vV | sed -n 's/^host: //p')
LLVM    := $(shell rustc --print target-libdir)/../bin

# How many simulated nodes, and clusters: a comma would end an argument of make's `or`.
FLEET := 100,1000,5000
HUB := 100,1000

# The oldest kubelet that can be built from the Go module proxy here, and the first with scopes.
OLDER := v1.30.14,v1.34.4

# The release before this one, by its tag or its commit.
PREVIOUS ?= $(or $(shell git describe --tags --abbrev=0 HEAD^ 2>/dev/null),1a5095c)

# $(call archives,PROGRAMS,IMAGES,BESIDE): the images, of the programs in one folder (an older release has no hub); what else is in the syncer's.
archives = mkdir -p $(2) && \
	cargo run -q -p globalps-tests --bin ociimage -- --binary $(1)/globalps-controller \
		--name globalps-controller --user 65532:65532 --output $(2)/globalps-controller.tar && \
	{ ! test -f $(1)/globalps-hub || cargo run -q -p globalps-tests --bin ociimage -- --binary $(1)/globalps-hub \
		--name globalps-hub --user 65532:65532 --output $(2)/globalps-hub.tar; } && \
	cargo run -q -p globalps-tests --bin ociimage -- --binary $(1)/globalps-syncer \
		--name globalps-syncer --user 0:0 $(3) --output $(2)/globalps-syncer.tar

# By itself, or it gets the features of the others; and fast, since pulls wait for it.
PROVIDER := cargo build --release --locked --target $(MUSL) -p globalps-credential-provider \
	--config 'profile.release.package.globalps-core.opt-level=2'

# What libFuzzer steers by: which edges ran, and what was compared with what.
COVERAGE := --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
	-Cllvm-args=-sanitizer-coverage-trace-compares

# What decides and does nothing: what `make mutants` changes.
DECIDING := core/src/phase.rs core/src/rollout/** core/src/dockerconfig/merge.rs core/src/dockerconfig/keys.rs \
	core/src/dockerconfig/canonical.rs syncer/src/**/decide.rs syncer/src/**/drift.rs \
	core/src/provider/** syncer/src/delivery/config_file.rs syncer/src/delivery/credential_provider.rs controller/src/nodes/** controller/src/content/** \
	controller/src/namespaces/** controller/src/operators/** controller/src/targets/** core/src/references.rs

.PHONY: help demo dist test unit bench bench-nodes bench-fleet bench-namespaces bench-clusters bench-plugin bench-provider race soak soak-delivery soak-hub previous matrix mutants fuzz fuzz-bytes coverage lint fmt image manifests docs man pictures cluster cluster-down deps kubernetes zig clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 16

demo: image kubernetes ## three real nodes pick up a private registry's password (KEEP=1: leave them running)
	cargo run -q -p globalps-tests --bin demo

test: unit image previous kubernetes ## every promise, unit tests first, then on real nodes, side by side (tests/README.md)
	cargo run -q -p globalps-tests --bin suite

unit: ## the tests that need neither root nor a cluster
	cargo test --workspace --lib --bins

bench: image kubernetes ## how fast a rotation is and how lean what runs, on three real nodes
	cargo run -q -p globalps-tests --bin bench
	cargo bench -q -p globalps-core

bench-nodes: image kubernetes ## a rotation of NODES real nodes (12) at two limits, and one that meets a node which fails
	cargo run -q -p globalps-tests --bin rotation -- --nodes $(or $(NODES),12)

bench-fleet: kubernetes ## how a rotation and its cost grow with NODES (100,1000,5000), simulated; about 15 minutes
	cargo build --release --locked --target $(MUSL) -p globalps-controller
	cargo build -q --profile load -p globalps-tests --bin testcluster --bin fleet
	target/load/fleet --nodes $(or $(NODES),$(FLEET))

bench-namespaces: kubernetes ## pull secrets in NAMESPACES (1000) namespaces: fill, rotation, a new one, removal; a few minutes
	cargo build --release --locked --target $(MUSL) -p globalps-controller
	cargo build -q --profile load -p globalps-tests --bin testcluster --bin namespaces
	target/load/namespaces --namespaces $(or $(NAMESPACES),1000)

bench-clusters: kubernetes ## the hub in front of CLUSTERS (100,1000), simulated: start, rotations, a third away; TIME (200) ms each, SHARDS (1)
	cargo build --release --locked --target $(MUSL) -p globalps-controller --bin globalps-hub
	cargo build -q --profile load -p globalps-tests --bin testcluster --bin clusters
	ulimit -n $$(ulimit -Hn) && target/load/clusters --clusters $(or $(CLUSTERS),$(HUB)) --time $(or $(TIME),200) --shards $(or $(SHARDS),1)

race: image kubernetes ## COUNT (200) times a namespace and a pod at once, with pull secrets in namespaces: how many pods run, and when
	cargo run -q -p globalps-tests --bin race -- --count $(or $(COUNT),200)

bench-plugin: kubernetes ## how long one waits for the plugin, in front of NODES (5000), simulated; about three minutes
	cargo build --release --locked --target $(MUSL) -p globalps-controller
	cargo build --release --locked --target $(MUSL) -p kubectl-globalps
	cargo build -q --profile load -p globalps-tests --bin testcluster --bin waiting
	target/load/waiting --nodes $(or $(NODES),5000)

bench-provider: ## how long a pull waits for the credential provider, beside /bin/true, with 10 and 5,000 entries
	$(PROVIDER)
	cargo run -q -p globalps-tests --bin bench_provider -- --runs $(or $(RUNS),500)

soak-delivery: image kubernetes ## random namespaces, exclusions, rotations and interference on a real API server, for MINUTES (30); SEED (1)
	cargo run -q -p globalps-tests --bin delivery_soak -- --minutes $(or $(MINUTES),30) --seed $(or $(SEED),1)

soak-hub: kubernetes ## two hubs, random changes, outages and interference, on real and simulated members, for MINUTES (30); SEED (1)
	cargo build --release --locked --target $(MUSL) -p globalps-controller --bin globalps-hub
	cargo run -q -p globalps-tests --bin hub_soak -- --minutes $(or $(MINUTES),30) --seed $(or $(SEED),1)

soak: image kubernetes ## everything that may happen at random, on NODES real nodes (6), for MINUTES (30); SEED (1)
	cargo run -q -p globalps-tests --bin soak -- --minutes $(or $(MINUTES),30) --nodes $(or $(NODES),6) --seed $(or $(SEED),1)

matrix: image kubernetes ## the credential provider with kubelets of other releases, KUBELETS (v1.30.14,v1.34.4); each is built, 4 minutes
	cargo run -q -p globalps-tests --bin matrix -- --kubelets $(or $(KUBELETS),$(OLDER))

fuzz: deps ## CASES generated credentials files (a million) and PULLS with the provider (100000), judged by the kubelet's and CRI-O's own code
	$(PROVIDER)
	cargo run -q -p globalps-tests --bin fuzz -- --cases $(or $(CASES),1000000) --provider-cases $(or $(PULLS),100000) --seed $(or $(SEED),1)

fuzz-bytes: ## any bytes into what reads credentials, for SECONDS (an hour), on JOBS cores (one)
	mkdir -p target/fuzz/corpus
	cd core/fuzz && RUSTFLAGS="$(COVERAGE)" cargo build -q --release --locked --target-dir ../../target/fuzz --target $(HOST)
	cd target/fuzz && $(HOST)/release/dockerconfig corpus ../../core/fuzz/seeds -dict=../../core/fuzz/dockerconfig.dict \
		-max_len=$(or $(MAX_LEN),4096) -timeout=1 -max_total_time=$(or $(SECONDS),3600) -fork=$(or $(JOBS),1)

# Each mutant is judged by the unit and property tests of its own crate. That a property fails is enough: no smaller case is looked for.
mutants: ## changes to FILES (those that decide; globs), each of which a unit or property test must catch; hours for all
	test -x $(TOOLS)/bin/cargo-mutants || cargo install -q --locked --root $(TOOLS) cargo-mutants@27.1.0
	mkdir -p target/mutants
	PATH="$(CURDIR)/$(TOOLS)/bin:$$PATH" CARGO_TARGET_DIR=$(CURDIR)/target/mutants/target PROPTEST_MAX_SHRINK_ITERS=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0 \
		cargo mutants --output target/mutants \
		--timeout 300 --build-timeout 600 --no-shuffle $(foreach file,$(or $(FILES),$(DECIDING)),--file '$(file)') -- --tests

coverage: deps ## lines of core that its own tests run, file by file
	rustup -q component add llvm-tools
	rm -rf target/coverage/*.profraw
	RUSTFLAGS=-Cinstrument-coverage LLVM_PROFILE_FILE=$(CURDIR)/target/coverage/%p.profraw \
		cargo test -q --target-dir target/coverage -p globalps-core --lib
	$(LLVM)/llvm-profdata merge -o target/coverage/all.profdata target/coverage/*.profraw
	$(LLVM)/llvm-cov report -instr-profile target/coverage/all.profdata \
		$$(ls -t target/coverage/debug/deps/globalps_core-* | grep -v '\.' | head -1) $(CURDIR)/core/src

lint: ## formatting and clippy, warnings are errors
	cargo fmt --all --check
	cargo fmt --manifest-path core/fuzz/Cargo.toml --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	CUSTOM_LIBFUZZER_PATH=$(CURDIR)/target/libfuzzer.a cargo clippy --manifest-path core/fuzz/Cargo.toml --target-dir target \
		--all-targets --locked -- -D warnings # nothing is linked: the library need not be there

fmt: ## format everything
	cargo fmt --all

image: deps ## the OCI archives in target/images, and the plugin in target/*-musl/release
	cargo build --release --locked --target $(MUSL) -p globalps-controller -p globalps-syncer
	cargo build --release --locked --target $(MUSL) -p kubectl-globalps # by itself, or the others get its features too
	$(PROVIDER)
	$(call archives,$(RELEASE),$(IMAGES),--beside $(RELEASE)/globalps-credential-provider)

# A commit is built once. Dependencies, which take most of the time, are copies of this tree's. Programs of two trees in one target directory
# would be taken for each other. The files get the time of now: cargo rebuilds what is newer than what it built last.
previous: image ## the images of the release before this one, PREVIOUS (the newest tag), in target/previous
	@git cat-file -e "$(PREVIOUS)^{commit}" || { echo "the commit of the release before, $(PREVIOUS), is not here: run \`git fetch --unshallow --tags\`"; exit 1; }
	test "$$(cat target/previous/built 2>/dev/null)" = $(PREVIOUS) || { set -e; \
		rm -rf target/previous && mkdir -p target/previous/source target/previous/target/$(MUSL); \
		git archive $(PREVIOUS) | tar --extract --touch --directory target/previous/source; \
		cp .cargo/*.ld target/previous/source/.cargo; \
		cp --archive target/release target/previous/target; \
		cp --archive $(RELEASE) target/previous/target/$(MUSL); \
		find target/previous/target -name '*globalps*' -prune -exec rm -r {} +; \
		provider=$$(cd target/previous/source && ls -d credential-provider 2>/dev/null || true); \
		cargo build --release --locked --target $(MUSL) --target-dir target/previous/target \
			--manifest-path target/previous/source/Cargo.toml -p globalps-controller -p globalps-syncer $${provider:+-p globalps-$$provider}; \
		$(call archives,target/previous/$(RELEASE),target/previous/images,$${provider:+--beside target/previous/$(RELEASE)/globalps-$$provider}) && \
		rm -r target/previous/target && echo $(PREVIOUS) > target/previous/built; }

# What was built before is not taken for this one. Of the flags in .cargo/config.toml, which are for musl, zig's linker does not know those for the linker.
dist: deps zig ## archives of the plugin for each platform that can be built for here, with the krew manifest, in target/dist
	rm -rf target/dist
	cargo build --release --locked --target $(MUSL) -p kubectl-globalps
	for target in $(FOREIGN); do \
		case $$target in *-musl) flags="-C force-unwind-tables=no";; *) flags=;; esac; \
		rm -f target/$$target/release/kubectl-globalps target/$$target/release/kubectl-globalps.exe; \
		{ rustup -q target add $$target && PATH="$(CURDIR)/$(TOOLS)/bin:$$PATH" PYTHONPATH="$(CURDIR)/$(TOOLS)/python" RUSTFLAGS="$$flags" \
			cargo zigbuild --release --locked --target $$target -p kubectl-globalps; } || echo "could not build for $$target"; done
	$(if $(SDKROOT),,@echo "not built for darwin: SDKROOT names no SDK of Apple's")
	cargo run -q -p globalps-tests --bin dist

manifests: ## write manifests/ from the builders
	UPDATE_MANIFESTS=1 cargo test -q -p globalps-core --lib the_committed_manifests

docs: ## write docs/cli.md, docs/faults.md, docs/reference-cases.md and the table in tests/README.md from the code
	UPDATE_DOCS=1 cargo test -q -p kubectl-globalps reference
	UPDATE_DOCS=1 cargo test -q -p globalps-tests --lib -- faults reference_cases map

pictures: image kubernetes ## docs/img: the plugin at work on six real nodes, as a terminal shows it
	cargo run -q -p globalps-tests --bin pictures

man: ## the plugin's man pages, in target/man
	MAN_DIR=$(CURDIR)/target/man cargo test -q -p kubectl-globalps man_page

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

zig: # what links programs for other platforms
	test -x $(TOOLS)/bin/cargo-zigbuild || cargo install -q --locked --root $(TOOLS) cargo-zigbuild@0.24.1
	test -d $(TOOLS)/python/ziglang || python3 -m pip install -q --target $(TOOLS)/python ziglang==0.17.1 \
		|| { echo "zig could not be installed: is there pip? As root, run \`apt-get install --yes python3-pip\`"; exit 1; }

clean: ## what was built, but not a running cluster
	cargo clean
