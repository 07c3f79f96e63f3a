# Entry points for development. The programs behind the recipes document themselves with --help, and take make's variables as flags.

MUSL     := $(shell uname -m)-unknown-linux-musl
RELEASE  := target/$(MUSL)/release
BUILD    := cargo build --release --locked --target $(MUSL)
# Alone, so that it does not get the other crates' features.
PROVIDER := $(BUILD) -p globalps-credential-provider --config .cargo/provider.toml
CLUSTER  := target/debug/testkit cluster
TESTKIT  := cargo run -q --bin testkit --
LOAD     := target/load/testkit

.PHONY: $(shell sed -n 's/^\([a-z -]*\):.*/\1/p' Makefile)

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 18

# In parallel: linking uses one core. Kubernetes comes before what is missing on this machine is installed, because that takes a program.
demo: ## roll out a registry's password to three real nodes (KEEP=1 leaves the cluster running)
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

bench-nodes: image kubernetes ## measure rotations of NODES (12) real nodes; also beside virtual nodes, and one that fails
	$(TESTKIT) bench nodes

bench-fleet: kubernetes load ## measure the time and cost of a rotation with NODES (100,1000,5000) simulated nodes; about 15 minutes
	$(LOAD) bench fleet

bench-namespaces: kubernetes load ## measure pull secrets in NAMESPACES (1000) namespaces; a few minutes
	$(LOAD) bench namespaces

bench-clusters: kubernetes load ## measure the hub with CLUSTERS (100,1000) simulated clusters, TIME (200) ms each, SHARDS (1)
	ulimit -n $$(ulimit -Hn) && $(LOAD) bench clusters

race: image kubernetes ## create a namespace and a pod together, COUNT (200) times: how many pods run, and when
	$(TESTKIT) bench race

bench-plugin: kubernetes load ## measure the plugin's response times with NODES (5000) simulated nodes; about six minutes
	$(BUILD) -p kubectl-globalps
	$(LOAD) bench plugin

bench-provider: ## measure how long a pull waits for the credential provider, compared to /bin/true, in RUNS (500)
	$(PROVIDER)
	$(TESTKIT) bench provider

soak-delivery: image kubernetes ## run random changes of namespaces and content on a real API server for MINUTES (30); SEED (1)
	$(TESTKIT) soak delivery

soak-hub: kubernetes ## run two hubs under random changes, outages and interference for MINUTES (30); SEED (1)
	$(BUILD) -p globalps-controller --bin globalps-hub
	$(TESTKIT) soak hub

soak: image kubernetes ## run random events of every kind on NODES (6) real nodes for MINUTES (30); SEED (1)
	$(TESTKIT) soak nodes

matrix: image kubernetes ## test with VERSIONS (1.30 to 1.37), RUNTIMES (containerd) and CRIO, and write docs/compatibility.md; ten minutes each
	$(TESTKIT) matrix --output docs/compatibility.md

matrix-kubeadm: ## test kubeadm upgrades with VERSIONS (1.35 to 1.37) and write their part of docs/compatibility.md; a few minutes
	$(TESTKIT) matrix-kubeadm $(if $(VERSIONS),,--output docs/compatibility.md)

ecosystem: image previous-chart kubernetes moto ## run COMPANIONS (all), the tests beside other projects' programs: ten minutes to build
	PATH="$(CURDIR)/target/tools/moto/bin:$$PATH" $(TESTKIT) suite $(or $(COMPANIONS),--companions)

fuzz: deps ## compare CASES (1000000) files and PULLS (100000) with the kubelet's and CRI-O's own code; SEED (1)
	$(PROVIDER)
	$(TESTKIT) fuzz

fuzz-bytes: ## fuzz the credentials parser with arbitrary bytes for SECONDS (3600) on JOBS (1) cores
	mkdir -p target/fuzz/corpus
	cd crates/dockerconfig/fuzz && cargo build -q --release --locked
	cd target/fuzz && $$(rustc --print host-tuple)/release/dockerconfig corpus ../../crates/dockerconfig/fuzz/seeds \
		-dict=../../crates/dockerconfig/fuzz/dockerconfig.dict -max_len=$(or $(MAX_LEN),4096) -timeout=1 \
		-max_total_time=$(or $(SECONDS),3600) -fork=$(or $(JOBS),1)

mutants: ## change FILES (default: the pure code); a unit or property test must catch each change; hours for all
	cargo xtask mutants

coverage: deps ## show which lines of CRATE (dockerconfig) in crates/ its own tests cover, per file
	cargo xtask coverage

lint: deny book ## check formatting, clippy, the dependencies and the book; warnings are errors
	cargo fmt --all --check
	cargo xtask generate --check
	cargo fmt --manifest-path crates/dockerconfig/fuzz/Cargo.toml --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	CUSTOM_LIBFUZZER_PATH=$(CURDIR)/target/libfuzzer.a cargo clippy --manifest-path crates/dockerconfig/fuzz/Cargo.toml --target-dir target \
		--all-targets --locked -- -D warnings # nothing is linked, so the library need not exist

deny: ## check all dependencies (deny.toml). ADVISORIES: a clone of the RustSec database
	cargo xtask deny

fmt: ## format everything
	cargo fmt --all

image: deps ## build the OCI archives in target/images, and the plugin in target/*-musl/release
	$(BUILD) -p globalps-controller -p globalps-syncer
	$(BUILD) -p kubectl-globalps # alone: other crates would get its features
	$(PROVIDER)
	$(TESTKIT) images $(RELEASE) target/images

# With the features of all crates: one build, so that each crate is compiled once. `make image` replaces it.
quick: musl
	$(BUILD) --config .cargo/quick.toml $(addprefix --bin ,globalps-controller globalps-syncer globalps-credential-provider kubectl-globalps testkit)
	$(RELEASE)/testkit cluster preflight --install
	@$(RELEASE)/testkit images $(RELEASE) target/images

musl: # what builds static programs, before there is any program of this repository
	command -v musl-gcc >/dev/null || { apt-get update --quiet=2 && apt-get install --yes --quiet=2 --no-install-recommends musl-tools; } \
		|| { echo "musl-gcc is missing: as root, run \`apt-get update && apt-get install --yes musl-tools\`"; exit 1; }
	test -d "$$(rustc --print target-libdir --target $(MUSL))" || rustup -q target add $(MUSL)

compiled:
	tests/kubernetes/build target/kubernetes/bin

previous: image ## build the images of the previous release, PREVIOUS (the newest tag), in target/previous
	cargo xtask previous

previous-chart: image # the same with its plugin, for the upgrades by Helm and plugin
	cargo xtask previous --plugin

dist: deps zig ## build archives of the plugin for all platforms, with the krew manifest, in target/dist
	cargo xtask dist

release: deps zig auditable qemu ## build everything of VERSION in target/release-VERSION, signed with KEY (docs/releasing.md)
	cargo xtask release build

release-check: deps zig auditable qemu ## build VERSION in two clones (in CLONES) and compare every byte; sign and verify with a new key
	cargo xtask release check

generate: ## write what is generated from the code: manifests/, charts/, pages in docs/, the table in tests/README.md
	cargo xtask generate

pictures: image kubernetes ## take the pictures in docs/img: the plugin on a terminal, with six real nodes, and the demo
	cargo xtask pictures

dashboard: image kubernetes ## draw the dashboard in docs/img from the metrics of a rollout on NODES (12) real nodes; three minutes
	cargo xtask dashboard

book: ## build the documentation as a book in target/book, with mdBook, and check every link in it
	cargo xtask book

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

load: # controller, hub, and what simulates thousands of nodes for them
	$(BUILD) -p globalps-controller
	cargo build -q --profile load --bin testkit

auditable moto qemu zig: # tools, of which xtask/src/tools.rs has the list
	cargo xtask tool $@

clean: ## remove build output; a running cluster stays
	cargo clean
