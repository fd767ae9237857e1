# Commands for development. Each target sets up .venv from the pinned and hashed files in requirements/ if needed.
# From another directory: make -C path/to/pasto test.

PYTHON ?= python3
# Options of `make demo`, `make serve`, `make paper`, `make bench`, `make chaos` and `make lock`: make paper OPTIONS=--quick
OPTIONS ?=

BIN := .venv/bin
UV := $(BIN)/uv
INSTALL := $(UV) pip install --quiet --python $(BIN)/python --compile-bytecode
COMPILE := UV_CUSTOM_COMPILE_COMMAND='make lock' $(UV) pip compile --quiet --universal --fork-strategy fewest \
	--python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-emit-package pasto --no-emit-package pasto-sdk --no-emit-package pasto-research $(OPTIONS)

PROJECTS := pyproject.toml clients/python/pyproject.toml research/pyproject.toml

# Files that mark what is installed in .venv: uv, the dependencies of PASTO, those of the checks and tests, torch, and
# those of the tests with real services.
TOOL := .venv/.ready-uv
RUN := .venv/.ready-run
DEV := .venv/.ready-dev
TORCH := .venv/.ready-torch
SERVICES := .venv/.ready-services

# One thread for linear algebra: the arrays are small, and the tests already run in parallel.
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup demo serve test services chaos check format paper realdata bench lock clean
.DELETE_ON_ERROR:

help: ## List these targets.
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

setup: $(DEV) ## Build .venv with PASTO and everything its tests need.

demo: $(RUN) ## Watch a live service learn a blend from simulated users.
	@$(BIN)/pasto demo $(OPTIONS)

serve: $(RUN) ## Run the service on this machine, with its store in pasto-data/.
	@$(BIN)/pasto serve $(OPTIONS)

test: check ## Check, then run the tests with the examples in README, docs and docstrings.
	$(BIN)/pytest -q -n auto --maxprocesses 4 -m "not services and not realdata"

services: $(SERVICES) ## Run the tests that need PostgreSQL or Node, and the long ones, at full size.
	$(BIN)/pytest -q -n auto --maxprocesses 2 -m services tests

chaos: $(DEV) ## Kill, flood and corrupt real services on loopback, and print a table of losses.
	@$(BIN)/python -m tests.chaos $(OPTIONS)

check: $(DEV) ## Check format, lint, types and the import contract.
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check --quiet
	$(BIN)/mypy --no-error-summary
	$(BIN)/lint-imports --no-logo

format: $(DEV) ## Format the code and apply the linter's fixes.
	$(BIN)/ruff check --fix --quiet
	$(BIN)/ruff format

paper: $(TORCH) ## Reproduce the paper's tables and figures, into paper-results/; DATA=DIR adds real data.
	$(BIN)/pasto paper all --out paper-results --cache paper-results/cache $(if $(DATA),--data '$(DATA)') $(OPTIONS)

bench: $(DEV) ## Measure PASTO next to other ways of doing the same work.
	$(BIN)/pasto bench all $(OPTIONS)

lock: $(TOOL) ## Write requirements/ again from the three pyproject.toml files.
	$(COMPILE) --extra dev $(PROJECTS) --output-file requirements/dev.txt
	$(COMPILE) --extra browser --extra dev --extra spark --constraint requirements/dev.txt $(PROJECTS) \
		--output-file requirements/services.txt
	printf 'editables\nhatchling\n' | $(COMPILE) --extra serve --constraint requirements/dev.txt pyproject.toml \
		clients/python/pyproject.toml - --output-file requirements/run.txt
	printf 'uv\n' | $(COMPILE) - --output-file requirements/uv.txt

realdata: $(TORCH) ## Run the tests that need torch or files of real size; DATA=DIR adds the paper's commands on real data.
	PASTO_DATA='$(DATA)' $(BIN)/pytest -q -n auto --maxprocesses 2 -m realdata tests/research/paper

# torch is large and only needed for training, so it is not in the pinned files.
$(TORCH): $(DEV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'torch==2.13.0' 'duckdb>=1.5,<3'
	@touch $@

clean: ## Remove .venv, caches and what the commands wrote.
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist paper-results
	find src clients/python research tests examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(TOOL): requirements/uv.txt
	@test -x $(BIN)/python || { \
		$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
			echo "PASTO needs Python 3.11 or newer, got $$($(PYTHON) --version 2>&1) from '$(PYTHON)'." \
				"Name another one: make setup PYTHON=python3.12" >&2; exit 1; }; \
		echo "Building .venv with $$($(PYTHON) --version)"; \
		$(PYTHON) -m venv --clear .venv; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

$(RUN): requirements/run.txt pyproject.toml clients/python/pyproject.toml $(TOOL)
	@echo "Installing PASTO into .venv"
	@$(INSTALL) --require-hashes -r $<
	@$(INSTALL) --no-deps --no-build-isolation --editable clients/python --editable .
	@touch $@

$(DEV): requirements/dev.txt research/pyproject.toml $(RUN)
	@echo "Installing what the checks and tests need"
	@$(INSTALL) --require-hashes -r $<
	@$(INSTALL) --no-deps --no-build-isolation --editable research
	@touch $@

$(SERVICES): requirements/services.txt $(DEV)
	@echo "Installing what the tests with real services need"
	@$(INSTALL) --require-hashes -r $<
	@touch $@
