# What people do with a checkout. `make` alone lists it.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# rustup's installer puts cargo here; a shell opened before it ran does not know.
export PATH := $(PATH):$(HOME)/.cargo/bin

CARGO_TARGET_DIR ?= target
export CARGO_TARGET_DIR
TIDEGATE := $(CARGO_TARGET_DIR)/release/tidegate

# Passed on to the command that a target runs: make demo ARGS="--seconds 20"
ARGS ?=
# For `make test-cases`: cases of each property.
CASES ?= 3000
# For `make fuzz`: which target, and how long each.
TARGET ?=
SECONDS_EACH := $(if $(filter command line environment,$(origin SECONDS)),$(SECONDS),60)

##@ Using it

.PHONY: demo
demo: build ## Show what scheduling is worth: noisy neighbours on an NVMe volume and a hard disk, 40 seconds
	@$(TIDEGATE) demo $(ARGS)

.PHONY: build
build: ## Build the release binary, target/release/tidegate
	@scripts/setup build
	@cargo build --release --locked --package tidegate $(if $(wildcard $(TIDEGATE)),--quiet)

##@ Working on it

.PHONY: setup
setup: ## Install everything that testing and benchmarking need (apt, rustup)
	@scripts/setup --strict bench

.PHONY: test
test: ## Run all checks and tests, as continuous integration does
	@scripts/setup test
	@scripts/test $(ARGS)

.PHONY: test-long
test-long: ## Run the tests that are too long for continuous integration
	@scripts/setup test
	@cargo test --locked --workspace --no-fail-fast -- --ignored $(ARGS)

.PHONY: test-cases
test-cases: ## Run all property tests on cases never tried, CASES=3000 each
	@scripts/setup test
	@PROPTEST_CASES=$(CASES) cargo test --locked --workspace --no-fail-fast $(ARGS)

.PHONY: test-web
test-web: ## Test the dashboard in headless Chromium, where npm and Chromium are installed
	@scripts/test-web $(ARGS)

.PHONY: test-parquet
test-parquet: ## Test `tidegate sweep --per-seed FILE.parquet`, which needs the feature parquet
	@cargo test --locked --package tidegate --package tidegate-commands --features tidegate/parquet --lib --test suite -- sweep $(ARGS)

.PHONY: test-cluster
test-cluster: ## Test the store in etcd, and the exchange of hosts over NATS
	@scripts/setup test
	@cargo test --locked --package tidegate-cluster --features etcd $(ARGS)
	@cargo test --locked --package tidegate --features cluster --test suite -- place::etcd
	@cargo test --locked --package tidegate-exchange --features nats
	@cargo test --locked --package tidegate --features cluster --test e2e -- exchange::

.PHONY: cluster-test
cluster-test: ## Break a cluster of three hosts, namespaces of this machine, while three placers fill it, as root
	@scripts/setup test
	@cargo build --release --locked --package tidegate --features cluster --target-dir $(CARGO_TARGET_DIR)/cluster
	@scripts/cluster-test --tidegate $(CARGO_TARGET_DIR)/cluster/release/tidegate $(ARGS)

.PHONY: cluster-versions
cluster-versions: ## Test the store in etcd on versions 3.5 to 3.7, built by Go, as root
	@scripts/setup test
	@cargo build --locked --package tidegate --features cluster
	@scripts/cluster-versions $(ARGS)

.PHONY: test-api
test-api: ## Test the control API by requests made of its OpenAPI description (schemathesis, Python 3)
	@scripts/test-api $(ARGS)

.PHONY: web
web: ## Build the files of the dashboard anew, which are committed (npm)
	@npm ci --prefix crates/dashboard/web --no-audit --no-fund
	@npm run build --prefix crates/dashboard/web

.PHONY: lint
lint: ## Check formatting, lints and documentation only
	@scripts/setup test
	@scripts/test format clippy docs

.PHONY: deny
deny: ## Check licences, sources, bans and advisories of dependencies by cargo-deny, installed if it is not
	@command -v cargo-deny > /dev/null || cargo install --locked cargo-deny
	@cargo deny --all-features check $(ARGS)

.PHONY: pictures
pictures: build ## Draw the pictures of the documentation again
	@$(TIDEGATE) compare examples/noisy-neighbour-nvme.toml --policy slo \
		--fixed-depth fifo,mclock --svg docs/pictures/noisy-neighbour.svg
	@npm ci --prefix crates/dashboard/web --no-audit --no-fund
	@TIDEGATE=$(abspath $(TIDEGATE)) node crates/dashboard/web/tests/pictures.mjs docs/pictures

.PHONY: fuzz
fuzz: ## Fuzz each target, or TARGET=name, for SECONDS=60 each
	@scripts/setup build
	@scripts/fuzz --seconds $(SECONDS_EACH) $(TARGET) $(ARGS)

.PHONY: fuzz-long
fuzz-long: ## Fuzz each target, or TARGET=name, for half an hour, two at a time
	@scripts/setup build
	@scripts/fuzz --seconds $(if $(filter command line environment,$(origin SECONDS)),$(SECONDS),1800) \
		--jobs 2 --minimise $(TARGET) $(ARGS)

.PHONY: torture
torture: build ## Torture engine and placement under faults: 5000 seeds, or ARGS="--minutes 60"
	@$(TIDEGATE) torture $(or $(ARGS),--seeds 5000)
	@TIDEGATE_TORTURE_SEEDS=$${TIDEGATE_TORTURE_SEEDS:-5000} \
	  cargo test --locked --workspace --features tidegate/cluster --lib store::etcd::torture -- --quiet

.PHONY: culprits
culprits: ## Plant culprits on all devices under many policies: is the right one named in 95 % of the windows?
	@cargo test --locked --release -p tidegate-sim --test suite culprits:: -- --include-ignored --nocapture $(ARGS)

.PHONY: soak
soak: build ## Soak the daemon: verified I/O while clients are killed and policies change, 10 minutes
	@scripts/setup bench
	@scripts/soak --tidegate $(TIDEGATE) $(ARGS)

.PHONY: durability
durability: build ## Cut the power under the daemon's disk: FUSE, and as root ext4, xfs and btrfs, twenty times each
	@scripts/setup bench
	@cargo build --release --locked --package tidegate-server --example vhost_driver
	@scripts/durability --tidegate $(TIDEGATE) --driver $(CARGO_TARGET_DIR)/release/examples/vhost_driver $(ARGS)

##@ Packaging it

.PHONY: pgo
pgo: ## Build the program optimised by a profile of its own runs, target/pgo/*/release/tidegate
	@scripts/setup cluster
	@scripts/pgo

.PHONY: release
release: ## Make package, static binary, container image, checksums and SBOM in target/dist
	@scripts/setup package
	@scripts/package all

.PHONY: deb
deb: ## Make the Debian package, target/dist/tidegate_*.deb
	@scripts/setup cluster
	@scripts/package deb

.PHONY: static
static: ## Make the static binary (musl), target/dist/tidegate-*-x86_64-unknown-linux-musl
	@scripts/setup package
	@scripts/package static

.PHONY: container
container: ## Make the container image by buildah, podman or docker
	@scripts/setup package
	@scripts/package container

.PHONY: test-deb
test-deb: ## Install, upgrade, remove and purge the Debian package in a root file system of its own, as root
	@scripts/setup package
	@scripts/package --debug deb
	@scripts/test-deb target/dist/*.deb

.PHONY: test-boot
test-boot: test-deb ## Boot Debian with systemd in QEMU and use the package there, as root; ARGS="--older FILE.deb" upgrades that
	@scripts/setup test
	@scripts/test-boot $(ARGS) target/dist/*.deb

.PHONY: test-static
test-static: build static ## Compare what the static binary simulates with what the other one does
	@scripts/compare-builds $(TIDEGATE) target/dist/tidegate-*-x86_64-unknown-linux-musl --quick

##@ Measuring it

.PHONY: bench
bench: build ## Measure the engine: ns per request by policy and number of VMs
	@$(TIDEGATE) bench engine $(ARGS)

.PHONY: bench-nbd
bench-nbd: build ## Compare serving NBD with nbdkit, other servers and a floor that only moves bytes
	@scripts/setup bench
	@python3 bench/nbd.py --tidegate $(TIDEGATE) $(ARGS)

.PHONY: bench-vhost
bench-vhost: build ## Compare disks by vhost-user-blk with qemu-storage-daemon's
	@scripts/setup bench
	@python3 bench/vhost.py --tidegate $(TIDEGATE) $(ARGS)

.PHONY: fair
fair: build ## Share disks live, fio over NBD: a bottleneck, vFair's figures 9 and 10, this machine's disk
	@scripts/setup bench
	@python3 bench/fair.py --tidegate $(TIDEGATE) $(ARGS)

.PHONY: fidelity
fidelity: build ## Hold the simulator against the daemon: twenty mixes, live by fio and simulated, 15 minutes
	@scripts/setup bench
	@python3 bench/fidelity.py --tidegate $(TIDEGATE) $(ARGS)

.PHONY: scale
scale: build ## Serve 1,000 VMs: start and memory, and the shares of 100 that are active, by fio
	@scripts/setup bench
	@python3 bench/scale.py --tidegate $(TIDEGATE) $(ARGS)

.PHONY: isolation
isolation: build ## Read beside VMs that misbehave, live: what request slots and memory cost a VM with a reservation
	@python3 bench/isolation.py --tidegate $(TIDEGATE) $(ARGS)

.PHONY: precise
precise: build ## Hold a bandwidth precisely live, fio over NBD: alone, after a stall, beside neighbours
	@scripts/setup bench
	@python3 bench/precise.py --tidegate $(TIDEGATE) $(ARGS)

.PHONY: deadline
deadline: build ## Meet a deadline by I/O classes: three fio processes on this machine's disk under BFQ, as root
	@scripts/setup bench
	@python3 bench/deadline.py --tidegate $(TIDEGATE) $(ARGS)

.PHONY: promises
promises: build ## Judge the default policy: devices x mixes x round trips, beside all other policies
	@$(TIDEGATE) promises --policy slo --compare --results target/promises.jsonl \
		--build "$$(scripts/engine-digest)" $(ARGS)

.PHONY: promises-random
promises-random: build ## Judge the default policy on 24 random mixes, a few minutes
	@$(TIDEGATE) promises --policy slo --random 24 --rtt "100 us" --seeds 1 \
		--requests 150000 --seconds 20 $(ARGS)

.PHONY: promises-live
promises-live: build ## Judge the default policy live: mixes on emulated devices and this machine's disk, 8 minutes
	@scripts/setup bench
	@python3 bench/promises.py --tidegate $(TIDEGATE) $(ARGS)

.PHONY: reproduce
reproduce: build ## Run published experiments again and set them beside the papers' figures
	@$(TIDEGATE) reproduce flubber $(ARGS)
	@$(TIDEGATE) reproduce vfair $(ARGS)
	@$(TIDEGATE) reproduce vcup $(ARGS)
	@$(TIDEGATE) reproduce pridyn $(ARGS)
	@$(TIDEGATE) reproduce pcos $(ARGS)
	@$(TIDEGATE) reproduce isacs $(ARGS)

##@ Help

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@/ { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z][a-z0-9-]*:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nOptions for the command behind a target: make demo ARGS="--seconds 20"\n'
