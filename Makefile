# Shardis. `make` lists the targets.
SHELL := /bin/bash
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -X main.version=$(VERSION)
GO ?= go
T ?= 1m
SOAK ?= 10m
COMMANDS ?= 300000
DEMO ?=

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: setup-run build ## set up and run a cluster on this machine (DEMO="--load --port 7000 …")
	./bin/shardis demo --load $(DEMO)

.PHONY: test
test: setup-test web vet ## set up and pass all tests: unit, real Redis and etcd, clients, browser
	$(GO) test -race -timeout 30m ./...
	cd web && npm run --silent check
	@echo "all tests passed"

.PHONY: unit
unit: web ## the quick tests: pure and in-process, with the race detector
	$(GO) test -race -short -shuffle=on ./...

.PHONY: build
build: web ## build bin/shardis with the page in it
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/shardis ./cmd/shardis

.PHONY: web
web: web/dist/index.html ## build the dashboard's page

web/node_modules/.package-lock.json: web/package.json web/package-lock.json
	@echo "web: installing packages" >&2
	@cd web && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

web/dist/index.html: web/node_modules/.package-lock.json web/index.html web/vite.config.ts $(shell find web/src -type f 2>/dev/null)
	@echo "web: building the page" >&2
	@cd web && npm run --silent build

.PHONY: check
check: fmt-check vet gen-check arch web-check ## what a change must pass before the tests

.PHONY: fmt
fmt: ## format the Go code
	gofmt -w cmd proxy coordinator dashboard docs web/*.go

.PHONY: fmt-check
fmt-check: ## fail on unformatted Go code
	@out=$$(gofmt -l cmd proxy coordinator dashboard docs web/*.go); [ -z "$$out" ] || { echo "not formatted: $$out (make fmt)"; exit 1; }

.PHONY: vet
vet: ## go vet, and does what differs on macOS compile there
	$(GO) vet ./...
	GOOS=darwin $(GO) build ./proxy/internal/... ./coordinator/localredis

.PHONY: macos
macos: web ## does everything compile for macOS
	GOOS=darwin $(GO) vet ./...

.PHONY: lint
lint: ## golangci-lint 2 with the set of .golangci.yml
	@command -v golangci-lint >/dev/null || { echo "golangci-lint is missing: see https://golangci-lint.run/docs/welcome/install/"; exit 1; }
	golangci-lint run ./...

.PHONY: arch
arch: ## the import table of docs/ARCHITECTURE.md
	$(GO) test ./docs -run TestImports -count=1

.PHONY: gen
gen: ## regenerate the command table
	$(GO) generate ./...

.PHONY: gen-check
gen-check: gen ## fail when generated files are not current
	git diff --exit-code -- '*_gen.go'

.PHONY: web-check
web-check: web ## types, lint and unit tests of the page
	cd web && npm run --silent check

.PHONY: compatibility
compatibility: ## the long differential test (COMMANDS=300000); writes docs/COMPATIBILITY.md
	$(GO) test ./proxy/internal/loop -run 'TestDifferential' -timeout 60m -count=1 -v -commands $(COMMANDS) -record

.PHONY: soak
soak: ## mixed load for SOAK=10m: memory, goroutines, descriptors stay flat; and faults at full size
	$(GO) test ./proxy/internal/loop -run 'TestSoak|TestSickNode|TestLargeValue|TestManyIdle' -timeout 60m -count=1 -v -soak $(SOAK) -long

.PHONY: fuzz
fuzz: ## each fuzz target in turn, T=1m each
	@for file in $$(grep -rlE '^func Fuzz' --include='*_test.go' .); do \
		for target in $$(grep -oE '^func (Fuzz[A-Za-z0-9]+)' $$file | awk '{print $$2}'); do \
			echo "== $$target in $$(dirname $$file)"; \
			$(GO) test $$(dirname $$file) -run '^$$' -fuzz "^$$target$$" -fuzztime $(T) -fuzzminimizetime 5s || exit 1; \
		done; \
	done

.PHONY: bench
bench: setup-bench build ## compare with direct Redis and twemproxy; writes docs/BENCHMARKS.md
	$(GO) run ./cmd/bench -write docs/BENCHMARKS.md

.PHONY: e2e
e2e: setup-test build ## the end-to-end tests alone: browser, load, faults
	$(GO) test -timeout 30m -count=1 -v -run 'TestE2E' ./cmd/shardis

.PHONY: screenshots
screenshots: setup-test build ## take the pictures of docs/img/ from a demo cluster
	SHARDIS_SCREENSHOTS=$(CURDIR)/docs/img $(GO) test -timeout 10m -count=1 -run 'TestE2EBrowser' ./cmd/shardis

.PHONY: setup-run setup-test setup-bench
setup-run: ## install what the demo needs and the machine lacks
	@deploy/setup.sh run
setup-test: ## install what the tests need and the machine lacks
	@deploy/setup.sh test
setup-bench: ## install what the benchmark needs and the machine lacks
	@deploy/setup.sh bench

.PHONY: clean
clean: ## remove what was built
	rm -rf bin web/dist/assets web/dist/index.html* web/node_modules
