# Needs Go; nested modules with cgo also a C compiler and their library, which `make deps` installs on Debian.
# `make help` lists the targets. Every target works in a fresh clone.

GO     ?= go
PYTHON ?= python3
FUZZTIME ?= 30s
BENCH    ?= .
COUNT    ?= 1

# Modules besides the root and the data (which has no Go code), found by their go.mod.
NESTED := $(shell find . -name .git -prune -o -name '.venv*' -prune -o -name go.mod -print | sed 's|^\./||; s|/*go\.mod$$||' | grep -v 'testdata$$' | grep . | sort)

.DEFAULT_GOAL := help
.PHONY: help demo deps test test-root race test-nested test-pyzmq fuzz bench lint cross golden golden-check \
	bench-hash bench-peers bench-tokenize bench-policy model-test slow-index-test support

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: ## route recorded prompts with recorded events, and compare with what the engines reported
	$(GO) run ./examples/quickstart

# --- tests

test: deps test-nested test-pyzmq test-root race ## everything: installs what is missing, nested modules, root without cgo, root with -race

test-root: ## the root module as importers get it: no cgo, nothing installed
	CGO_ENABLED=0 $(GO) build ./...
	CGO_ENABLED=0 $(GO) vet ./...
	CGO_ENABLED=0 $(GO) test ./...

race: ## the root module under the race detector (needs a C compiler)
	$(GO) test -race ./...
	$(GO) test -race -tags purego -run 'Under|Concurrent' ./radix # the detector does not see what assembly reads

deps: ## install what nested modules need
	@for dir in $(NESTED); do internal/tools/deps.sh $$dir || exit 1; done

test-nested: ## nested modules, among them the checks of dependencies and of module zips
	@set -e; for dir in $(NESTED); do \
		echo "# $$dir"; \
		(cd $$dir && $(GO) vet ./... && $(GO) test -count=1 ./...); \
	done

test-pyzmq: ## our ZMTP sockets against libzmq's, as Python has them
	KVATLAS_PYZMQ=$$(kvevents/zmtp/testdata/pyzmq/setup.sh .venv-pyzmq) $(GO) test -count=1 -run PyZMQ ./kvevents/zmtp/

model-test: ## random model test of streams: STEPS=N SEED=S
	STEPS=$(STEPS) SEED=$(SEED) $(GO) test -count=1 -v -run 'Model' ./kvevents/...

slow-index-test: ## trial T71 in full: BATCHES (default 1000000) to an index too slow for them
	BATCHES=$(or $(BATCHES),1000000) $(GO) test -count=1 -v -run TrialT71 ./kvevents

fuzz: ## every fuzz target for FUZZTIME (default 30s) each
	@GO="$(GO)" internal/tools/fuzz.sh $(FUZZTIME)

# --- style

lint: deps ## gofmt, vet and staticcheck of every module
	@GO="$(GO)" internal/tools/lint.sh $(NESTED)

cross: ## vet on other platforms, and the tests as a 32-bit program
	@GO="$(GO)" internal/tools/cross.sh

support: ## write the README's table of what is supported anew
	$(GO) run ./internal/support

# --- golden vectors

golden: ## make the block hashes of VERSION (a vLLM release) anew and compare with the committed ones
	@test -n "$(VERSION)" || { echo 'usage: make golden VERSION=0.31.0' >&2; exit 2; }
	@PYTHON="$(PYTHON)" VENVS="$(VENVS)" testdata/vllm/hash/gen/golden.sh $(VERSION)

golden-check: ## the same with the newest release on PyPI: fails when its answers are of no known era
	@PYTHON="$(PYTHON)" VENVS="$(VENVS)" testdata/vllm/hash/gen/golden.sh latest

# --- benchmarks: each belongs to its folder

bench: ## benchmarks of the root module: BENCH=regexp COUNT=n
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count $(COUNT) ./...

bench-hash bench-peers bench-tokenize bench-policy: ## see benchmarks/README.md
	@test -f benchmarks/Makefile || { echo '$@: benchmarks/ is not there yet' >&2; exit 1; }
	@$(MAKE) --no-print-directory -C benchmarks $(@:bench-%=%)
