# Entry points for development. The programs behind the recipes document themselves with --help.

MUSL    := $(shell uname -m)-unknown-linux-musl
RELEASE := target/$(MUSL)/release
IMAGES  := target/images
# Additional platforms, linked by zig. macOS also needs Apple's SDK in the directory SDKROOT.
FOREIGN := aarch64-unknown-linux-musl x86_64-pc-windows-gnu $(if $(SDKROOT),x86_64-apple-darwin aarch64-apple-darwin)
TOOLS   := target/tools
# What takes minutes to build and does not depend on this tree: another clone finds it there.
CACHE   := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/globalps
CLUSTER := target/debug/testkit cluster
TESTKIT := cargo run -q --bin testkit --
LOAD    := target/load/testkit

HOST    := $(shell rustc -vV | sed -n 's/^host: //p')
LLVM    := $(shell rustc --print target-libdir)/../bin

# Numbers of simulated nodes and clusters. Variables, because a comma would end an argument of make's `or`.
FLEET := 100,1000,5000
HUB := 100,1000

# Test files that run beside other projects' own programs.
COMPANIONS := alerts chart external_secrets flux installers short_lived tutorials upgrade_tools

# A release of each minor version that globalps supports: the newest that the Go module proxy has whole.
RELEASES := v1.30.14,v1.31.4,v1.32.5,v1.33.13,v1.34.4,v1.35.4,v1.36.3,v1.37.2
# Further releases of containerd for the newest Kubernetes: the last of 1.x, the one with long-term support, the newest. The machine's own is 1.6.
CONTAINERD := v1.7.35,v2.3.7,v2.4.2
# Releases whose kubeadm treats the kubelet's flags differently at an upgrade.
KUBEADM := v1.35.4,v1.36.3,v1.37.2

# The previous release, as a tag or commit. Before the first release: a commit that has today's format of revisions, by its message.
PREVIOUS ?= $(or $(shell git describe --tags --abbrev=0 HEAD^ 2>/dev/null),$(shell git rev-parse --short=9 'HEAD^{/^Words of the API}'))

# $(call archives,PROGRAMS,IMAGES,BESIDE): writes image archives of the programs in directory PROGRAMS to directory IMAGES. BESIDE: additional flags
# for the syncer's image. An older release has no hub.
OCIIMAGE := $(TESTKIT) image
archives = mkdir -p $(2) && \
	$(OCIIMAGE) --binary $(1)/globalps-controller \
		--name globalps-controller --user 65532:65532 --output $(2)/globalps-controller.tar && \
	{ ! test -f $(1)/globalps-hub || $(OCIIMAGE) --binary $(1)/globalps-hub \
		--name globalps-hub --user 65532:65532 --output $(2)/globalps-hub.tar; } && \
	$(OCIIMAGE) --binary $(1)/globalps-syncer \
		--name globalps-syncer --user 0:0 $(3) --output $(2)/globalps-syncer.tar

# Built alone, so that it does not get the other crates' features. Optimized for speed, because pulls wait for it.
PROVIDER := cargo build --release --locked --target $(MUSL) -p globalps-credential-provider \
	--config 'profile.release.package.globalps-dockerconfig.opt-level=2' --config 'profile.release.package.globalps-provider.opt-level=2'

# Instrumentation for libFuzzer: executed edges and compared values.
COVERAGE := --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
	-Cllvm-args=-sanitizer-coverage-trace-compares

DENY_VERSION := 0.20.2
MDBOOK_VERSION := 0.5.2
DENY := $(CACHE)/tools/bin/cargo-deny
MDBOOK := $(CACHE)/tools/bin/mdbook
# Makes git take the clone ADVISORIES in place of the RustSec database's own address.
RUSTSEC := $(if $(ADVISORIES),GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=url.$(abspath $(ADVISORIES)).insteadOf GIT_CONFIG_VALUE_0=https://github.com/RustSec/advisory-db)

# Pure code that makes decisions: `make mutants` changes it.
DECIDING := crates/core/src/phase.rs crates/core/src/labels.rs crates/core/src/decode.rs crates/core/src/state.rs crates/core/src/machine_config.rs \
	crates/core/src/virtual_nodes.rs crates/core/src/references.rs crates/core/src/rollout/** crates/dockerconfig/src/merge.rs crates/dockerconfig/src/keys.rs \
	crates/dockerconfig/src/canonical.rs crates/dockerconfig/src/effective.rs crates/provider/src/** \
	syncer/src/**/decide.rs syncer/src/**/drift.rs syncer/src/node/units.rs \
	syncer/src/delivery/config_file.rs syncer/src/delivery/credential_provider.rs \
	controller/src/nodes/** controller/src/content/** controller/src/namespaces/** controller/src/operators/** \
	controller/src/targets/** controller/src/clusters/** controller/src/refused/** controller/src/hub/objects.rs

.PHONY: help demo quick dist test unit bench bench-nodes bench-fleet bench-namespaces bench-clusters bench-plugin bench-provider race soak soak-delivery soak-hub previous previous-chart matrix matrix-kubeadm ecosystem mutants fuzz fuzz-bytes coverage lint deny fmt image generate book man pictures dashboard cluster cluster-down deps kubernetes moto musl compiled zig release release-check auditable qemu clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 18

# In parallel: linking uses one core. Kubernetes comes before what is missing on this machine is installed, because that takes a program.
demo: ## roll out a private registry's password to three real nodes (KEEP=1 leaves the cluster running)
	@test "$$(id -u)" = 0 || { echo "the demo starts real nodes, which needs root: run \`sudo --preserve-env=PATH make demo\`"; exit 1; }
	@command -v go >/dev/null || { echo "Go is missing, which builds Kubernetes: install Go 1.26 or newer, see https://go.dev/dl"; exit 1; }
	@echo "==> Building globalps and Kubernetes: ten to fifteen minutes on two cores the first time, seconds after that"
	$(MAKE) --no-print-directory -j2 quick compiled
	@echo "==> Starting the demo: about half a minute"
	$(RELEASE)/testkit cluster build
	$(RELEASE)/testkit demo

# In parallel: linking and the unit tests use one core.
test: deps ## run all tests: unit tests, then tests on real nodes in parallel (see tests/README.md)
	$(MAKE) --no-print-directory -j2 kubernetes image previous unit
	$(TESTKIT) suite

unit: ## run the tests that need neither root nor a cluster
	cargo test --workspace --lib --bins

bench: image kubernetes ## measure the time of a rotation and the memory of each program, on three real nodes
	$(TESTKIT) bench rotation
	cargo bench -q -p globalps-dockerconfig

bench-nodes: image kubernetes ## measure rotations of NODES (12) real nodes with two limits, beside two virtual nodes too, and one in which a node fails
	$(TESTKIT) bench nodes --nodes $(or $(NODES),12)

bench-fleet: kubernetes ## measure how the time and cost of a rotation grow with NODES (100,1000,5000) simulated nodes; about 15 minutes
	cargo build --release --locked --target $(MUSL) -p globalps-controller
	cargo build -q --profile load --bin testkit
	$(LOAD) bench fleet --nodes $(or $(NODES),$(FLEET))

bench-namespaces: kubernetes ## measure pull secrets in NAMESPACES (1000) namespaces: creation, rotation, a new namespace, removal; a few minutes
	cargo build --release --locked --target $(MUSL) -p globalps-controller
	cargo build -q --profile load --bin testkit
	$(LOAD) bench namespaces --namespaces $(or $(NAMESPACES),1000)

bench-clusters: kubernetes ## measure the hub with CLUSTERS (100,1000) simulated clusters, TIME (200) ms each, SHARDS (1): start, rotations, a third unreachable
	cargo build --release --locked --target $(MUSL) -p globalps-controller --bin globalps-hub
	cargo build -q --profile load --bin testkit
	ulimit -n $$(ulimit -Hn) && $(LOAD) bench clusters --clusters $(or $(CLUSTERS),$(HUB)) --time $(or $(TIME),200) --shards $(or $(SHARDS),1)

race: image kubernetes ## create a namespace and a pod together, COUNT (200) times, with pull secrets in namespaces: how many pods run, and when
	$(TESTKIT) bench race --count $(or $(COUNT),200)

bench-plugin: kubernetes ## measure the plugin's response times with NODES (5000) simulated nodes; about six minutes
	cargo build --release --locked --target $(MUSL) -p globalps-controller
	cargo build --release --locked --target $(MUSL) -p kubectl-globalps
	cargo build -q --profile load --bin testkit
	$(LOAD) bench plugin --nodes $(or $(NODES),5000)

bench-provider: ## measure how long a pull waits for the credential provider, compared to /bin/true, with 10 and 5,000 entries
	$(PROVIDER)
	$(TESTKIT) bench provider --runs $(or $(RUNS),500)

soak-delivery: image kubernetes ## run random changes of namespaces, exclusions and content, with interference, on a real API server for MINUTES (30); SEED (1)
	$(TESTKIT) soak delivery --minutes $(or $(MINUTES),30) --seed $(or $(SEED),1)

soak-hub: kubernetes ## run two hubs under random changes, outages and interference, with real and simulated members, for MINUTES (30); SEED (1)
	cargo build --release --locked --target $(MUSL) -p globalps-controller --bin globalps-hub
	$(TESTKIT) soak hub --minutes $(or $(MINUTES),30) --seed $(or $(SEED),1)

soak: image kubernetes ## run random events of every kind on NODES (6) real nodes for MINUTES (30); SEED (1)
	$(TESTKIT) soak nodes --minutes $(or $(MINUTES),30) --nodes $(or $(NODES),6) --seed $(or $(SEED),1)

# CRIO: a directory with CRI-O's programs crio and pinns, which no package of Debian 12 and no Go module has. conmon is a package.
matrix: image kubernetes ## run tests on clusters of VERSIONS (1.30 to 1.37), with RUNTIMES of containerd, and write docs/compatibility.md; each release takes ten minutes to build
	$(TESTKIT) matrix --output docs/compatibility.md $(if $(CRIO),--crio $(CRIO)) $(if $(VERSIONS)$(RUNTIMES), \
		$(if $(VERSIONS),--releases $(VERSIONS)) $(if $(RUNTIMES),--containerd $(RUNTIMES)), \
		--releases $(RELEASES) --containerd $(CONTAINERD) --kubeadm $(KUBEADM))

matrix-kubeadm: ## run the test of kubeadm upgrades with VERSIONS (1.35 to 1.37) and write their part of docs/compatibility.md; a few minutes
	$(TESTKIT) matrix --kubeadm $(or $(VERSIONS),$(KUBEADM)) $(if $(VERSIONS),,--output docs/compatibility.md)

ecosystem: image previous-chart kubernetes moto ## run tests beside COMPANIONS (alerts chart external_secrets flux installers short_lived tutorials upgrade_tools), built from the Go module proxy: ten minutes to build
	PATH="$(CURDIR)/$(TOOLS)/moto/bin:$$PATH" $(TESTKIT) suite $(COMPANIONS)

moto: # stands in for Amazon's API
	test -x $(TOOLS)/moto/bin/moto_server || { python3 -m venv $(TOOLS)/moto && $(TOOLS)/moto/bin/pip install -q 'moto[server]==5.2.5'; } \
		|| { echo "could not install moto, perhaps because venv is missing: as root, run \`apt-get install --yes python3-venv\`"; exit 1; }

fuzz: deps ## compare CASES (1000000) generated credentials files and PULLS (100000) by the provider with the kubelet's and CRI-O's own code; SEED (1)
	$(PROVIDER)
	$(TESTKIT) fuzz --cases $(or $(CASES),1000000) --provider-cases $(or $(PULLS),100000) --seed $(or $(SEED),1)

fuzz-bytes: ## fuzz the credentials parser with arbitrary bytes for SECONDS (3600) on JOBS (1) cores
	mkdir -p target/fuzz/corpus
	cd crates/dockerconfig/fuzz && RUSTFLAGS="$(COVERAGE)" cargo build -q --release --locked --target-dir ../../../target/fuzz --target $(HOST)
	cd target/fuzz && $(HOST)/release/dockerconfig corpus ../../crates/dockerconfig/fuzz/seeds -dict=../../crates/dockerconfig/fuzz/dockerconfig.dict \
		-max_len=$(or $(MAX_LEN),4096) -timeout=1 -max_total_time=$(or $(SECONDS),3600) -fork=$(or $(JOBS),1)

# The unit and property tests of its own crate judge each mutant. A failed property is enough, so shrinking is off.
mutants: ## change FILES (globs; default: the pure code); a unit or property test must catch each change; hours for all
	test -x $(TOOLS)/bin/cargo-mutants || cargo install -q --locked --root $(TOOLS) cargo-mutants@27.1.0
	mkdir -p target/mutants
	PATH="$(CURDIR)/$(TOOLS)/bin:$$PATH" CARGO_TARGET_DIR=$(CURDIR)/target/mutants/target PROPTEST_MAX_SHRINK_ITERS=0 CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0 \
		cargo mutants --output target/mutants \
		--timeout 300 --build-timeout 600 --no-shuffle $(foreach file,$(or $(FILES),$(DECIDING)),--file '$(file)') -- --tests

coverage: CRATE ?= dockerconfig
coverage: deps ## show which lines of CRATE (dockerconfig) in crates/ its own tests cover, per file
	rustup -q component add llvm-tools
	rm -rf target/coverage/*.profraw
	RUSTFLAGS=-Cinstrument-coverage LLVM_PROFILE_FILE=$(CURDIR)/target/coverage/%p.profraw \
		cargo test -q --target-dir target/coverage -p globalps-$(CRATE) --lib
	$(LLVM)/llvm-profdata merge -o target/coverage/all.profdata target/coverage/*.profraw
	$(LLVM)/llvm-cov report -instr-profile target/coverage/all.profdata \
		$$(ls -t target/coverage/debug/deps/globalps_$(CRATE)-* | grep -v '\.' | head -1) $(CURDIR)/crates/$(CRATE)/src

lint: deny book ## check formatting, clippy, the dependencies and that the book can be built; warnings are errors
	cargo fmt --all --check
	cargo xtask generate --check
	cargo fmt --manifest-path crates/dockerconfig/fuzz/Cargo.toml --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	CUSTOM_LIBFUZZER_PATH=$(CURDIR)/target/libfuzzer.a cargo clippy --manifest-path crates/dockerconfig/fuzz/Cargo.toml --target-dir target \
		--all-targets --locked -- -D warnings # nothing is linked, so the library need not exist

# Built without optimizations, in a minute instead of ten. Advisories need the RustSec database. Where it can't be fetched, that is said, and the rest is checked all the same.
deny: ## check licences, versions, sources and advisories of all dependencies (deny.toml). ADVISORIES: a clone of the RustSec database
	test "$$($(DENY) --version 2>/dev/null)" = "cargo-deny $(DENY_VERSION)" \
		|| cargo install -q --debug --locked --no-default-features --config profile.dev.debug=false --root $(CACHE)/tools cargo-deny@$(DENY_VERSION)
	$(DENY) --log-level error --locked check licenses bans sources
	@if $(RUSTSEC) timeout 120 $(DENY) --log-level off --locked fetch db >/dev/null 2>&1; \
		then echo "advisories: RustSec database of $$(git -C target/advisory-db/advisory-db-* log -1 --format=%cs)"; \
		$(DENY) --log-level error --locked --offline check advisories; \
		else echo "advisories: not checked, because the RustSec database could not be fetched; to check them, run \`make deny ADVISORIES=DIRECTORY\` with a clone of it"; fi

fmt: ## format everything
	cargo fmt --all

image: deps ## build the OCI archives in target/images, and the plugin in target/*-musl/release
	cargo build --release --locked --target $(MUSL) -p globalps-controller -p globalps-syncer
	cargo build --release --locked --target $(MUSL) -p kubectl-globalps # alone, so that the other crates don't get its features
	$(PROVIDER)
	$(call archives,$(RELEASE),$(IMAGES),--beside $(RELEASE)/globalps-credential-provider)

# What the demo needs, not optimized and with the features of all crates: one build, so that each crate is compiled once. `make image` replaces it.
QUICK := $(foreach option,opt-level=0 lto=false codegen-units=16 package.globalps-dockerconfig.opt-level=0 package.globalps-provider.opt-level=0 package.aho-corasick.opt-level=2,--config profile.release.$(option))
quick: OCIIMAGE := $(RELEASE)/testkit image
quick: musl
	cargo build --release --locked --target $(MUSL) $(QUICK) $(foreach program,globalps-controller globalps-syncer \
		globalps-credential-provider kubectl-globalps testkit,--bin $(program))
	$(RELEASE)/testkit cluster preflight --install
	@$(call archives,$(RELEASE),$(IMAGES),--beside $(RELEASE)/globalps-credential-provider)

musl: # what builds static programs
	command -v musl-gcc >/dev/null || { apt-get update --quiet=2 && apt-get install --yes --quiet=2 --no-install-recommends musl-tools; } \
		|| { echo "musl-gcc is missing: as root, run \`apt-get update && apt-get install --yes musl-tools\`"; exit 1; }
	test -d "$$(rustc --print target-libdir --target $(MUSL))" || rustup -q target add $(MUSL)

compiled:
	tests/kubernetes/build target/kubernetes/bin

# $(call older,COMMIT,DIRECTORY,PROGRAMS): builds the images of COMMIT, copies PROGRAMS beside them, and links DIRECTORY there. A commit is built once.
# Dependencies take most of the time, so they are copied from this tree's target directory. The target directories are separate, because cargo would
# confuse the programs of two trees in one. The files get the current time, because cargo rebuilds files that are newer than its last build.
define older
	@git cat-file -e "$(1)^{commit}" || { echo "the commit of the previous release, $(1), is missing: run \`git fetch --unshallow --tags\`"; exit 1; }
	older=$(CACHE)/older/$(MUSL)/$(1)$(addprefix -,$(3)); test -f $$older/built || { set -e; \
		rm -rf $$older && mkdir -p $$older/source $$older/target/$(MUSL); \
		git archive $(1) | tar --extract --touch --directory $$older/source; \
		cp .cargo/*.ld $$older/source/.cargo; \
		cp --archive target/release $$older/target; \
		cp --archive $(RELEASE) $$older/target/$(MUSL); \
		find $$older/target -name '*globalps*' -prune -exec rm -r {} +; \
		provider=$$(cd $$older/source && ls -d credential-provider 2>/dev/null || true); \
		cargo build --release --locked --target $(MUSL) --target-dir $$older/target --manifest-path $$older/source/Cargo.toml \
			-p globalps-controller -p globalps-syncer $(addprefix -p ,$(3)) $${provider:+-p globalps-$$provider}; \
		$(call archives,$$older/$(RELEASE),$$older/images,$${provider:+--beside $$older/$(RELEASE)/globalps-$$provider}); \
		$(foreach program,$(3),cp $$older/$(RELEASE)/$(program) $$older;) \
		rm -r $$older/target && touch $$older/built; }; \
	rm -rf $(2) && ln -s $$older $(2)
endef
previous: image ## build the images of the previous release, PREVIOUS (the newest tag), in target/previous
	$(call older,$(PREVIOUS),target/previous)

previous-chart: image # the same with its plugin, for the upgrades by Helm and plugin
	$(call older,$(PREVIOUS),target/previous-chart,kubectl-globalps)

# Removes older programs first, so that a failed build does not ship them. zig's linker does not support the linker flags for musl in
# .cargo/config.toml.
dist: deps zig ## build archives of the plugin for every platform that this machine can build for, with the krew manifest, in target/dist
	rm -rf target/dist
	cargo build --release --locked --target $(MUSL) -p kubectl-globalps
	for target in $(FOREIGN); do \
		case $$target in *-musl) flags="-C force-unwind-tables=no";; *) flags=;; esac; \
		rm -f target/$$target/release/kubectl-globalps target/$$target/release/kubectl-globalps.exe; \
		{ rustup -q target add $$target && PATH="$(CURDIR)/$(TOOLS)/bin:$$PATH" PYTHONPATH="$(CURDIR)/$(TOOLS)/python" RUSTFLAGS="$$flags" \
			cargo zigbuild --release --locked --target $$target -p kubectl-globalps; } || echo "could not build for $$target"; done
	$(if $(SDKROOT),,@echo "not built for darwin: set SDKROOT to the directory of Apple's SDK")
	cargo xtask dist

# REGISTRY: where the images are to be. KEY: cosign's private key, a file or a URI such as env://NAME. BUILDER: URI of the builder, for the provenance.
# PLATFORMS: names such as linux/amd64, instead of all.
REGISTRY ?= ghcr.io/globalps
what = --version "$(VERSION)" --registry $(REGISTRY) $(if $(BUILDER),--builder $(BUILDER)) $(foreach name,$(PLATFORMS),--platform $(name))

release: deps zig auditable qemu ## build images, plugin, manifests, chart, SBOMs and provenance of VERSION in target/release-VERSION, signed with KEY (docs/releasing.md)
	cargo xtask release build $(what) $(if $(KEY),--key $(KEY))

release-check: deps zig auditable qemu ## build VERSION in two clones (in CLONES) and compare every byte; sign and verify with a new key
	cargo xtask release check $(what) $(if $(CLONES),--directory $(CLONES))

auditable: # what lists the dependencies inside each program, and what reads that list
	test -x $(TOOLS)/bin/cargo-auditable || cargo install -q --locked --root $(TOOLS) cargo-auditable@0.7.7
	test -x $(TOOLS)/bin/auditable2cdx || cargo install -q --locked --root $(TOOLS) auditable2cdx@0.1.0

qemu: # runs programs for arm64
	command -v qemu-aarch64-static >/dev/null || apt-get install --yes --quiet=2 --no-install-recommends qemu-user-static \
		|| { echo "QEMU for arm64 is missing: as root, run \`apt-get update && apt-get install --yes qemu-user-static\`"; exit 1; }

generate: ## write manifests/, charts/, docs/cli.md, docs/api.md, docs/faults.md, docs/reference-cases.md and the table in tests/README.md from the code
	cargo xtask generate

pictures: image kubernetes ## take the pictures in docs/img: the plugin on a terminal, with six real nodes, and the demo
	cargo xtask pictures

dashboard: image kubernetes ## draw the dashboard in docs/img from the metrics of a rollout on NODES (12) real nodes, with a real Prometheus; needs three minutes
	cargo xtask dashboard --nodes $(or $(NODES),12)

book: ## build the documentation as a book in target/book, with mdBook, and check every link in it
	test "$$($(MDBOOK) --version 2>/dev/null)" = "mdbook v$(MDBOOK_VERSION)" \
		|| cargo install -q --debug --locked --no-default-features --features search --config profile.dev.debug=false --root $(CACHE)/tools mdbook@$(MDBOOK_VERSION)
	cargo xtask book --mdbook $(MDBOOK)

man: ## generate the plugin's man pages in target/man
	MAN_DIR=$(CURDIR)/target/man cargo test -q -p kubectl-globalps man_page

cluster: kubernetes ## start a cluster of three real nodes; kubeconfig: target/cluster/kubeconfig
	$(CLUSTER) up

cluster-down: ## stop that cluster and remove everything that it added to the machine
	cargo build -q --bin testkit
	$(CLUSTER) down

kubernetes: deps
	$(CLUSTER) build

deps: # checks for required packages; installs them as root on Debian, otherwise lists them
	cargo build -q --bin testkit
	$(CLUSTER) preflight --install

zig: # the linker for other platforms
	test -x $(TOOLS)/bin/cargo-zigbuild || cargo install -q --locked --root $(TOOLS) cargo-zigbuild@0.24.1
	test -d $(TOOLS)/python/ziglang || python3 -m pip install -q --target $(TOOLS)/python ziglang==0.17.1 \
		|| { echo "could not install zig, perhaps because pip is missing: as root, run \`apt-get install --yes python3-pip\`"; exit 1; }

clean: ## remove build output; a running cluster stays
	cargo clean
