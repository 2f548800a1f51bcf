# Ginnel. `make demo` shows it, `make test` proves it.

GO    ?= go
# Sample runs with expected results, kept outside this repository.
CASES ?= ../shared/cases

# Tests that make network namespaces and firewall rules run for root only.
ifeq ($(shell id -u),0)
TAGS := -tags e2e
NOTE := root: the tests tagged e2e run too
else
NOTE := skipped: the tests tagged e2e (network namespaces, nftables), which need root
endif

# The race detector needs a C compiler.
RACE := $(if $(shell command -v "$$($(GO) env CC)"),-race)
ifeq ($(RACE),)
NOTE += ; skipped: the race detector, which needs a C compiler
endif

# The one binary.
.PHONY: build
build:
	$(GO) build -o bin/ginnel ./cmd/ginnel

# A whole network in one process. With ONCE=1 it ends after the download.
.PHONY: demo
demo: build
	./bin/ginnel demo $(if $(ONCE),--once)

# Everything that must hold, with the race detector; then the cases.
.PHONY: test
test: build
	@echo '$(NOTE)'
	@for p in chromium curl dbus-daemon dig ip iperf3 nft psql scp ssh sshd systemd-resolved; do PATH=$$PATH:/usr/sbin:/sbin:/usr/lib/systemd command -v $$p >/dev/null || echo "skipped: the tests that run $$p, which is not installed"; done
	$(GO) vet $(TAGS) ./...
	$(GO) test $(TAGS) $(RACE) -shuffle=on ./...
	$(GO) test -run '^TestL17_SimultaneousDials$$' ./internal/transport # 10,000 times; with the detector 200
	$(GO) test -run '^TestNoRowIsLeft$$' ./cmd/ginnel # 10,000 dials; with the detector 500
	@$(MAKE) --no-print-directory cases

# The sample runs through their checkers.
.PHONY: cases
cases: build
	@if ! test -d $(CASES); then echo 'skipped: the cases: there is no $(CASES)'; \
	elif ! command -v python3 >/dev/null; then echo 'skipped: the cases: their checkers need python3'; \
	else \
		$(CASES)/check-replay ./bin/ginnel $(CASES)/dialer/*.jsonl && \
		$(CASES)/check-path ./bin/ginnel $(CASES)/path/*.json; \
	fi

# Throughput, connections and round trips of a network on this machine, beside a
# two-hop TLS relay, raw TCP, and ssh, stunnel and HAProxy where they are installed,
# in the same run. BENCH takes more flags: --json, --rounds 1. A chart is left in bin.
.PHONY: bench
bench: build
	@./bin/ginnel perf bench --chart bin/perf.svg $(BENCH)
	@./bin/ginnel controller bench $(if $(findstring --json,$(BENCH)),--json)
	@./bin/ginnel dialer bench $(if $(findstring --json,$(BENCH)),--json)
	@./bin/ginnel path bench $(if $(findstring --json,$(BENCH)),--json)
	@./bin/ginnel dns bench $(if $(findstring --json,$(BENCH)),--json)
	@./bin/ginnel tunnel bench $(if $(findstring --json,$(BENCH)),--json)

# Faults at random under bulk data, with a seed to make them again:
# make chaos SECONDS=600 [SEED=n].
SECONDS ?= 60
SEED    ?=
.PHONY: chaos
chaos:
	GINNEL_CHAOS_SECONDS=$(SECONDS) GINNEL_CHAOS_SEED=$(SEED) \
		$(GO) test -race -count=1 -timeout 0 -v -run '^TestChaos$$' ./internal/lab

# A network under mixed load for long: does anything grow? make soak MINUTES=30
# draws docs/img/soak.svg.
MINUTES ?= 30
.PHONY: soak
soak: build
	./bin/ginnel perf soak --duration $(MINUTES)m --plot docs/img/soak.svg

# The linter is built on first use, which takes minutes.
.PHONY: lint
lint:
	$(GO) tool -modfile=tools/go.mod golangci-lint run --build-tags e2e ./...

# Code made from protobuf files; needs protoc. It is committed.
.PHONY: generate
generate:
	$(GO) build -modfile=tools/go.mod -o bin/protoc-gen-go google.golang.org/protobuf/cmd/protoc-gen-go
	PATH="$(CURDIR)/bin:$$PATH" $(GO) generate ./...
