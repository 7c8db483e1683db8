# gpuslot: make help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# go-nvml's header marks old calls deprecated; its wrappers mention them all.
export CGO_CFLAGS := -O2 -Wno-deprecated-declarations
# /usr/local/go is where the Go project's own tarball puts it.
export PATH := $(PATH):/usr/local/go/bin

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -X main.version=$(VERSION)
GO ?= go
LINT := $(GO) tool -modfile=test/lint/go.mod golangci-lint

PREFIX ?= /usr
DESTDIR ?=
SYSCONFDIR ?= /etc
UNITDIR ?= $(PREFIX)/lib/systemd/system
LIBEXEC := $(DESTDIR)$(PREFIX)/libexec/gpuslot

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: tools
tools:
	@command -v $(GO) >/dev/null || { echo "gpuslot: install Go 1.26 or newer (go.dev/dl) and put it in PATH" >&2; exit 1; }
	@command -v gcc >/dev/null || { echo "gpuslot: install gcc (apt-get install gcc libc6-dev), which go-nvml needs" >&2; exit 1; }

.PHONY: build
build: tools ## the three programs, into bin/
	@mkdir -p bin
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/gpuslotd ./cmd/gpuslot
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/gpuslot-condor

.PHONY: install
install: ## programs, units and snippets, below DESTDIR (run make build first)
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/sbin bin/gpuslotd
	install -D -m 755 -t $(DESTDIR)$(PREFIX)/bin bin/gpuslot
	install -D -m 755 -t $(LIBEXEC) bin/gpuslot-condor
	for verb in prepare wrap supervise inventory monitor; do ln -sf gpuslot-condor $(LIBEXEC)/$$verb; done
	install -D -m 644 -t $(DESTDIR)$(UNITDIR) systemd/units/*.service systemd/units/*.socket
	install -D -m 644 -t '$(DESTDIR)$(UNITDIR)/systemd-journald@gpuslot.service.d' systemd/units/systemd-journald@gpuslot.service.d/10-gpuslot.conf
	install -D -m 644 -t '$(DESTDIR)$(PREFIX)/lib/systemd/journald@gpuslot.conf.d' systemd/journald/10-gpuslot.conf
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/condor/config.d etc/condor/50-gpuslot.conf
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/gpuslot/prometheus etc/prometheus/gpuslot.rules.yml
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/gpuslot/grafana etc/grafana/*.json
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/gpuslot etc/condor/gpuslot-status.cpf etc/auditor/gpuslot-htcondor-collector.yml
	test -e $(DESTDIR)$(SYSCONFDIR)/gpuslot/gpuslot.toml || install -D -m 644 -t $(DESTDIR)$(SYSCONFDIR)/gpuslot etc/gpuslot.toml

.PHONY: demo
demo: tools ## worker nodes with real systemd and HTCondor share GPUs, with real and with simulated MPS
	$(GO) run ./test/demo

.PHONY: test
test: check test-node ## everything that checks the project; CI runs exactly this

.PHONY: check
check: tools fmt-check vet lint test-unit ## format, lint, vet with all tags, race tests

.PHONY: fmt-check
fmt-check:
	@bad=$$(gofmt -l $$(git ls-files '*.go')); test -z "$$bad" || { echo "gpuslot: not formatted (run gofmt -w): $$bad" >&2; exit 1; }

.PHONY: vet
vet:
	$(GO) vet -tags gpu ./...
	CGO_ENABLED=0 $(GO) vet $$($(GO) list ./... | grep -v /gpuslot/test/) # test/sim is C and needs cgo
	bash -n $$(git ls-files '*.sh')

.PHONY: lint
lint:
	$(LINT) run ./...

# Packages below test/ boot nodes; they run by themselves, one after the other.
.PHONY: test-unit
test-unit:
	$(GO) test -race -timeout 15m $$($(GO) list ./... | grep -v /gpuslot/test/)

.PHONY: test-node
test-node:
	$(GO) test -p 1 -parallel 4 -timeout 40m ./test/...

FUZZTIME ?= 5s
.PHONY: fuzz
fuzz: tools ## every fuzz target for FUZZTIME each
	test/fuzz.sh $(FUZZTIME)

.PHONY: bench
bench: tools ## how fast, how small, how soon: figures beside their aims
	$(GO) run ./test/bench
	GPUSLOT_REACTIONS=3 $(GO) test ./test/faults -count=1 -timeout 30m -v -run '^TestReactions$$'
	$(GO) test ./mig -run - -bench Plan -benchtime 5x
	$(GO) test ./mig/simulate -count=1 -v -run Compare

.PHONY: campaign
campaign: tools ## what takes long, figures at the end: 500 faults, MIG, fuzz
	test/campaign.sh

.PHONY: clean
clean: ## removes bin/; caches live outside the repository
	rm -rf bin
