# Commands for developers and CI. The package is pure Python, so this is not a build system.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# CI builds kernels while it installs the rest; elsewhere there is one environment.
BUILDER := $(or $(wildcard build/builder/bin/python),$(BIN)/python)
JOBS ?= $(shell nproc)
# Tests wait for servers, timeouts and other processes an eighth of their time.
WORKERS ?= $(shell echo $$(($(JOBS) * 3 / 2)))
# Debian packages that only tests need: build systems, a server, a browser.
TEST_PACKAGES := cmake ninja-build redis-server chromium

.PHONY: help install install-check compiler builder headers debian setup toolchain browser fmt check test test-ci test-deep kernels docs site truth trees parity verified mutations clean
.PHONY: bench-render bench-compile bench-dispatch bench-emulator bench-journal bench-select bench-verify bench-cluster evaluate bundles

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: ## a virtual environment with the package and the development tools
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --editable '.[dev]'

install: ## everything for CI: packages from PyPI and Debian at once, then CK Tile's headers
	$(MAKE) -j2 setup debian
	$(MAKE) toolchain

install-check: ## `install`, then `check`, next to `kernels` in CI
	$(MAKE) install
	$(MAKE) check

compiler: ## the Debian packages of the GPU-less toolchain
	tools/install-toolchain

builder: compiler build/builder/bin/tilewright ## all that building kernels needs, ready in a minute
	$(MAKE) headers VENV=build/builder

build/builder/bin/tilewright:
	$(PYTHON) -m venv build/builder
	build/builder/bin/pip install --quiet --no-compile --editable .

debian: ## the Debian packages for the toolchain and the tests
	tools/install-debian $$(tools/install-toolchain --list) $(TEST_PACKAGES)

toolchain: compiler headers ## the GPU-less toolchain: compiler and headers (Debian), CK Tile's headers (PyPI)
	$(BIN)/tilewright doctor

headers: ## CK Tile's headers (PyPI)
	$(BIN)/tilewright toolchain fetch-ck --tools
	$(BIN)/tilewright toolchain fetch-ck --tree 2025-07

browser: ## Chromium (Debian), for the tests that open reports
	tools/install-debian chromium

fmt: ## format the code
	$(BIN)/ruff format src tests research tools examples
	$(BIN)/ruff check --fix src tests research tools examples

check: ## lint, format, types, layers, spelling, generated documents
	$(BIN)/ruff check src tests research tools examples
	$(BIN)/ruff format --check src tests research tools examples
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell src tests research tools examples docs README.md CONTRIBUTING.md CHANGELOG.md SECURITY.md
	$(BIN)/python tools/make_docs.py --check

test: ## the fast tests: no compiler, no GPU, no server, no cluster (8 minutes on two cores)
	$(BIN)/pytest -m 'not compile and not slow and not service and not deep' -n $(JOBS)

kernels: ## build the kernels that CI's tests share, the longest first (tests/ci_kernels.txt)
	$(BUILDER) tools/ci_kernels.py build --jobs $(JOBS)

test-ci: kernels ## CI's tests: all except those marked `deep`, with a time budget for each folder
	$(BIN)/pytest --tier ci --budgets -n $(WORKERS) --dist worksteal

test-deep: ## every test and every table, in parts; continues where it was stopped (hours)
	tools/install-debian nginx-light
	$(BIN)/python tools/deep_tests.py --jobs $(JOBS) --out docs/deep-tests.md

docs: ## update the generated documents
	$(BIN)/python tools/make_docs.py

site: ## the documentation as a site in build/site, with links checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

truth: ## compare the rules with the compiler on a large sample (about an hour)
	$(BIN)/python -m tests.proof.truth --accepted 400 --rejected 80 --seed 20261 --jobs $(JOBS) --out docs/truth.md
	$(BIN)/python -m tests.proof.truth --kept 40 --tree 2026-06-30 --jobs $(JOBS) --out docs/truth.md

trees: ## compare rules and results of one sample with two CK trees (about 40 minutes)
	$(BIN)/python -m tests.proof.trees --tree ../shared/ck/2026-06-30 --jobs $(JOBS) --out docs/ck-generations.md

parity: ## compare device code with that of CK's own generators; continues where it was stopped (about 15 minutes)
	$(BIN)/python -m tests.proof.parity --records build/parity.jsonl --out docs/parity.md

bench-render: ## rendering compared with CK's tile_engine builder
	$(BIN)/python tools/bench_render.py

bench-compile: ## compile time of a kernel compared with the plain unit, and of several at once (about 10 minutes)
	$(BIN)/python tools/bench_compile.py --out docs/bench-compile.md

bench-dispatch: ## overhead of `registry.run` compared with a bare call of the same kernel
	$(BIN)/python tools/bench_dispatch.py

bench-journal: ## time and memory of a million records: resume, merge, export, query (about 5 minutes)
	$(BIN)/python tools/bench_journal.py --records 1000000

bench-select: ## time to select a kernel, compared with a look-up and LightGBM's own predict
	$(BIN)/python tools/bench_select.py

bench-verify: ## host time to verify a GEMM, once for a problem and for each kernel; CPU time of all trials of kernels
	$(BIN)/python tools/bench_verify.py
	$(BIN)/python tools/bench_verify_kernels.py

bench-cluster: ## overhead of a task compared with bare Ray (a few minutes)
	$(BIN)/python tools/bench_cluster.py --out docs/bench-cluster.md

evaluate: ## selected kernels compared with the best measured ones, on ../shared/data (about 15 minutes)
	$(BIN)/python -m research.evaluate

bundles: ## train the shipped models again from ../shared/data
	$(BIN)/python -m research.train_bundles

bench-emulator: ## the speed of the emulated device: loops compared with C, programs at once, a GEMM (a few minutes)
	$(BIN)/python tools/bench_emulated_loops.py --out docs/bench-emulated-loops.md
	$(BIN)/python tools/bench_emulator.py --out docs/bench-emulator.md

verified: ## verify the truth sample's kernels on the emulated device in strict mode (about half an hour)
	$(BIN)/python -m tests.proof.verified --jobs $(JOBS) --out docs/verified.md
	$(BIN)/python -m tests.proof.verified --kept 40 --tree 2026-06-30 --jobs $(JOBS) --out docs/verified.md

mutations: ## does `verify` notice wrong kernels? changes one instruction, or one argument, at a time (hours)
	$(BIN)/python -m tests.proof.mutations --out docs/mutations.md
	$(BIN)/python -m tests.proof.arguments --out docs/mutations.md

clean: ## remove caches and build output
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
