# gpuslot: make help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# No path of this machine is in what is built, so that another clone of the same sources finds it in Go's cache.
# Without tables for debuggers (-w) the tests' programs are linked in half the time.
export GOFLAGS := -trimpath -ldflags=-w $(GOFLAGS)
# go-nvml's header marks old calls deprecated; its wrappers mention them all.
export CGO_CFLAGS := -O2 -Wno-deprecated-declarations
# /usr/local/go is where the Go project's own tarball puts it.
export PATH := $(PATH):/usr/local/go/bin

# The newest heading of CHANGELOG.md.
VERSION ?= $(shell etc/packaging/version.sh || echo unknown)
COMMIT := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# Every time in what is built is that of the sources.
export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
LDFLAGS := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
GO ?= go
LINT := $(GO) tool -modfile=test/lint/go.mod golangci-lint

PREFIX ?= /usr
DESTDIR ?=
SYSCONFDIR ?= /etc
UNITDIR ?= $(PREFIX)/lib/systemd/system
LIBEXEC := $(DESTDIR)$(PREFIX)/libexec/gpuslot
SHARE := $(DESTDIR)$(PREFIX)/share
BIN ?= bin
# What gpuslot-start is linked with.
LIBC ?= $(shell $(or $(CC),gcc) -print-file-name=libc.a)

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: tools
tools:
	@command -v $(GO) >/dev/null || { echo "gpuslot: install Go 1.26 or newer (go.dev/dl) and put it in PATH" >&2; exit 1; }
	@command -v gcc >/dev/null || { echo "gpuslot: install gcc (apt-get install gcc libc6-dev), which go-nvml needs" >&2; exit 1; }

.PHONY: build
build: tools ## the programs, into bin/
	@mkdir -p $(BIN)
	$(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/gpuslotd ./cmd/gpuslot
	CGO_ENABLED=0 $(GO) build -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/gpuslot-condor
	$(or $(CC),gcc) -std=gnu11 -Os -Wall -Wextra -Werror -static -s -o $(BIN)/gpuslot-start cmd/gpuslot-start/*.c

# Manual pages and completions, made of the programs' own words. They are the
# same for every architecture, so this runs on the building machine.
PAPERS := bin/share/.made
.PHONY: share
share: $(PAPERS) ## manual pages and completions, into bin/share/
$(PAPERS): $(shell git ls-files '*.go' go.mod docs/configuration.md docs/gpuslot-condor.md 2>/dev/null)
	@rm -rf bin/share && mkdir -p bin/share
	@GOARCH= CC= $(GO) test -vet=off -count=1 ./cmd/gpuslot ./cmd/gpuslotd -run '^TestPapers$$' -args -share '$(CURDIR)/bin/share' >/dev/null
	@touch $@

.PHONY: install
install: install-node install-papers ## everything, below DESTDIR (run make build first); the packages hold what this puts there

# What a node runs by.
.PHONY: install-node
install-node:
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/sbin $(BIN)/gpuslotd
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin $(BIN)/gpuslot
	# Without the right to read it, users cannot trace it: supervise runs as the job's account.
	install -D -m 711 -t $(LIBEXEC) $(BIN)/gpuslot-condor $(BIN)/gpuslot-start
	for verb in wrap inventory monitor; do ln -sf gpuslot-condor $(LIBEXEC)/$$verb; done
	for verb in prepare supervise; do ln -sf gpuslot-start $(LIBEXEC)/$$verb; done
	install -D -m 644 -t $(DESTDIR)$(UNITDIR) systemd/units/*.service systemd/units/*.socket
	install -D -m 644 -t '$(DESTDIR)$(UNITDIR)/systemd-journald@gpuslot.service.d' systemd/units/systemd-journald@gpuslot.service.d/10-gpuslot.conf
	install -D -m 644 -t '$(DESTDIR)$(PREFIX)/lib/systemd/journald@gpuslot.conf.d' systemd/journald/10-gpuslot.conf
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/lib/systemd/system-preset etc/packaging/50-gpuslot.preset
	install -D -m 644 etc/packaging/tmpfiles.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/gpuslot.conf
	install -D -m 644 etc/packaging/sysusers.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/gpuslot.conf
	install -D -m 644 -t $(SHARE)/selinux/packages etc/packaging/selinux/gpuslot.cil
	install -D -m 644 -t $(SHARE)/condor/config.d etc/condor/50-gpuslot.conf
	install -D -m 644 -t $(SHARE)/gpuslot/prometheus etc/prometheus/gpuslot.rules.yml
	install -D -m 644 -t $(SHARE)/gpuslot/grafana etc/grafana/*.json
	install -D -m 644 -t $(SHARE)/gpuslot etc/condor/gpuslot-status.cpf etc/condor/gpuslot-pilot.conf etc/auditor/gpuslot-htcondor-collector.yml etc/gpuslot.toml etc/gpuslot.schema.json
	test -e $(DESTDIR)$(SYSCONFDIR)/gpuslot/gpuslot.toml || install -D -m 644 -t $(DESTDIR)$(SYSCONFDIR)/gpuslot etc/gpuslot.toml

# The pages for operators and users; the others are for developers.
PAGES := $(filter-out docs/architecture.md docs/style.md docs/glossary.md,$(wildcard docs/*.md))

# What people read, and examples for configuration management.
.PHONY: install-papers
install-papers: $(PAPERS)
	for section in 1 5 8; do install -D -m 644 -t $(SHARE)/man/man$$section bin/share/man/man$$section/*; done
	install -D -m 644 -t $(SHARE)/bash-completion/completions bin/share/completions/gpuslot
	install -D -m 644 -t $(SHARE)/zsh/site-functions bin/share/completions/_gpuslot
	install -D -m 644 -t $(SHARE)/fish/vendor_completions.d bin/share/completions/gpuslot.fish
	install -D -m 644 -t $(SHARE)/doc/gpuslot CHANGELOG.md LICENSE $(PAGES)
	# Its pages lie beside it there, without those for developers.
	sed -e 's|(docs/|(|g' -e '/^| developers |/d' README.md >$(SHARE)/doc/gpuslot/README.md
	chmod 644 $(SHARE)/doc/gpuslot/README.md
	cd docs && find examples hardware -type f -exec install -D -m 644 '{}' '$(abspath $(SHARE))/doc/gpuslot/{}' ';'
	cd etc && find ansible puppet -type f -exec install -D -m 644 '{}' '$(abspath $(SHARE))/gpuslot/{}' ';'
	$(GO) run ./etc/packaging/supply -version '$(VERSION)' -into $(SHARE)/doc/gpuslot \
		-libc '$(LIBC)' $(BIN)/gpuslotd $(BIN)/gpuslot $(BIN)/gpuslot-condor

ARCHES ?= amd64 arm64
OUT ?= dist
.PHONY: packages
packages: tools ## .deb and .rpm for ARCHES, with an SBOM in each, into OUT (dist/)
	VERSION='$(VERSION)' etc/packaging/packages.sh $(OUT) $(ARCHES)

.PHONY: release
release: tools ## packages, SBOMs, release notes and checksums of the version in CHANGELOG.md, into OUT (dist/)
	etc/packaging/release.sh $(OUT) $(ARCHES)

.PHONY: vuln
vuln: tools ## known vulnerabilities of what we use, where their database can be had
	etc/packaging/vuln.sh

.PHONY: demo
demo: tools ## one node with real systemd and HTCondor: 100 jobs share 8 GPUs, limits, one fault
	@echo "make demo: about a minute; two or three the first time, to compile and to fetch HTCondor"
	@GPUSLOT_DEMO_BEGAN=$$(date +%s) $(GO) run ./test/demo

.PHONY: tour
tour: tools ## two nodes and all scenes, with NVIDIA's control daemons and with simulated MPS
	$(GO) run ./test/demo -tour

# Counts of tests that ran and of those that were skipped (test/tally).
TALLY := $(abspath $(BIN))/tests
# lint has all checks of vet. What a test finds on the machine is in no cache, so each runs. Some call make.
GO_TEST = env -u MAKEFLAGS -u MFLAGS $(TALLY)/tally -into $(TALLY)/$@ $(GO) test -vet=off -count=1

# Scenes wait for HTCondor much of their time, so what computes runs beside them. More
# at a time ends later: agents compute on while a node waits for its turn.
.PHONY: test
test: tally ## everything that checks the project; CI runs exactly this
	@status=0; $(MAKE) --no-print-directory -j2 test-scenes test-others || status=$$?; \
	$(TALLY)/tally -sum $(TALLY)/test-* || status=1; exit $$status

.PHONY: test-others
test-others:
	@status=0; unset MAKEFLAGS MFLAGS; \
	for part in check test-nodes; do $(MAKE) --no-print-directory -k $$part || status=1; done; exit $$status

# What takes long to get, for those that need it later.
.PHONY: fetch
fetch: tools
	@test/node/image.sh >/dev/null || echo "gpuslot: a node test will say why"
	@NODE_SUITE=bookworm NODE_CONDOR=no test/node/image.sh >/dev/null || echo "gpuslot: a node test will say why"

.PHONY: tally
tally: tools
	@rm -rf $(TALLY) && mkdir -p $(TALLY)
	@$(GO) build -o $(TALLY)/tally ./test/tally

.PHONY: test-busy
test-busy: ## make test beside three busy loops: no test may fail because a machine is slow
	test/busy.sh $(MAKE) --no-print-directory test

.PHONY: check
check: tools fmt-check lint vuln house-check test-unit ## format, lint with all tags, known vulnerabilities, sizes, race tests

.PHONY: fmt-check
fmt-check:
	@bad=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$bad" || { echo "gpuslot: not formatted (run gofmt -w): $$bad" >&2; exit 1; }
	bash -n $$(git ls-files '*.sh')

.PHONY: lint
lint:
	$(LINT) run --allow-parallel-runners ./...

# They start no goroutine and share nothing, which docs/race_test.go checks. The
# race detector finds nothing there, and makes them 10 to 40 times slower.
PURE := agent/capability agent/config agent/health agent/here agent/hook agent/observe agent/plan \
	agent/record agent/release agent/rules cmd/gpuslot/advise cmd/gpuslot/advise/paper cmd/gpuslot/bench \
	cmd/gpuslot/doctor cmd/gpuslot/given cmd/gpuslot/published cmd/gpuslot/sharing cmd/gpuslot/show \
	cmd/gpuslot/simulate/layouts cmd/gpuslot-condor condor condor/cgroup condor/classad docs etc/packaging/supply \
	gpu gpu/backoff gpu/devices gpu/foreign mig
is_pure := /gpuslot/\($(subst $(eval ) ,\|,$(strip $(PURE)))\)$$

# Packages below test/ boot nodes and run by themselves.
.PHONY: test-unit
test-unit: test-race test-pure

# The scripts of cmd/gpuslot start it hundreds of times, which costs five times as much with
# the race detector: test-pure has them.
SCRIPTS := ^(TestScripts|TestMIGScripts|TestBench)$$

# Some of them wait most of their time. Those that take longest start first.
.PHONY: test-race
test-race: | tally-there
	$(GO_TEST) -race -p 3 -timeout 30m -skip '$(SCRIPTS)' $$($(GO) list ./mps ./cmd/gpuslot ./agent ./agent/layouts ./systemd ./gpu/nvml ./... | grep -v -e /gpuslot/test/ -e '$(is_pure)')

.PHONY: test-pure
test-pure: | tally-there
	$(GO_TEST) -timeout 30m $$($(GO) list ./... | grep '$(is_pure)') ./cmd/gpuslot

# Those that take longest start first.
NODE_TEST = $(GO_TEST) -timeout 60m

.PHONY: test-scenes
test-scenes: | tally-there fetch
	$(NODE_TEST) -parallel 5 ./test/scenes

.PHONY: test-nodes
test-nodes: | tally-there fetch
	$(NODE_TEST) -p 2 -parallel 4 ./test/faults ./test/packages ./test/sim ./test/gpu/harness \
		$$($(GO) list ./test/... | grep -v /test/scenes$$)

.PHONY: tally-there
tally-there:
	@test -x $(TALLY)/tally || $(MAKE) --no-print-directory tally

.PHONY: house
house: tools ## how large the program is and how it is cut, beside the aims
	@$(GO) run ./test/house

.PHONY: house-check
house-check: tools | tally-there
	$(GO) run ./test/house -check
	$(GO_TEST) ./test/house

FUZZTIME ?= 60s
.PHONY: fuzz
fuzz: tools ## every fuzz target for FUZZTIME each, as many at a time as there are processors
	test/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: tools ## how fast, how small, how soon: figures beside their aims, for ten minutes
	$(GO) run ./test/bench

.PHONY: bench-all
bench-all: tools ## the same with what takes longer: faults, MIG layouts, a million records, pools of 80,000 GPUs
	$(GO) run ./test/bench all

.PHONY: bench-throughput
bench-throughput: tools ## job starts per second beside a pool with plain GPUs; GPUSLOT_THROUGHPUT_ROUNDS=5
	GPUSLOT_THROUGHPUT_ROUNDS=$${GPUSLOT_THROUGHPUT_ROUNDS:-5} $(GO) run ./test/bench throughput

GPU_BUNDLE ?= dist/gpu
GPU_OUT ?= dist/gpu-results
GPU_PARTS ?= truth node sharing-mix sharing-compute sharing-memory sharing-training report
.PHONY: gpu-bundle
gpu-bundle: tools ## the folder to copy to a machine with a GPU and nothing else (docs/hardware/README.md)
	test/gpu/bundle.sh $(GPU_BUNDLE)

RESULTS ?= results.tgz
.PHONY: gpu-results
gpu-results: tools ## a page of RESULTS (results.tgz), in docs/hardware/; of simulated ones, in dist/simulated/
	$(GO) run ./test/gpu/first -home $(RESULTS)

.PHONY: test-gpu
test-gpu: gpu-bundle ## everything that needs a GPU, on this machine's; results in GPU_OUT (dist/gpu-results)
	$(GO) test -count=1 -tags gpu ./gpu/nvml
	$(GO) test -count=1 -v -run '^TestRealFrameworks$$' ./docs
	status=0; for part in $(GPU_PARTS); do $(GPU_BUNDLE)/run.sh $$part $(GPU_OUT) || status=1; done; exit $$status

MUTANTS ?= 300
SEED ?= 1
.PHONY: mutants
mutants: tools ## MUTANTS single changes of the program, and which of them no test of their package notices
	$(GO) run ./test/mutants -n $(MUTANTS) -seed $(SEED)

.PHONY: campaign
campaign: tools ## what takes hours, one table at the end; goes on where it was cut off
	test/campaign.sh

.PHONY: clean
clean: ## removes bin/ and dist/; caches live outside the repository
	rm -rf bin dist
