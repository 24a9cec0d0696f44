# Everything a developer does, by one word each. Whatever a target needs is installed first, and only if it changed.

SHELL := /bin/sh
PYTHON ?= python3
ARGS ?=
NAME ?= log
JOBS ?= logical
BIN := .venv/bin
# A process for each core, four at most; tests of one group share a process, and with it what is dear to start.
PYTEST := $(BIN)/python -m pytest --numprocesses $(JOBS) --maxprocesses 4 --dist loadgroup --no-loadscope-reorder
DEV := .venv/.headwater-dev
DOCS := .venv/.headwater-docs
COMPILE := $(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate \
           --no-config --no-emit-index-url --no-emit-find-links --python-version 3.11 --upgrade
# What the images of deploy/Dockerfile hold, and what builds them.
SERVER := $(addprefix --extra ,console kafka mqtt mysql postgres redis server sourcing views webhook zeromq)
APP := $(SERVER) $(addprefix --extra ,java lake match s3 search sketches spark)

.DEFAULT_GOAL := help
.PHONY: help setup test slow night demo bench crash chaos docs lint format lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(DEV) ## Create .venv with everything in it; the other targets do this by themselves

test: $(DEV) ## Run the tests that start nothing, and a core of the others, in five minutes (ARGS="-k retention -x")
	@$(PYTEST) --tier test $(ARGS)

slow: $(DEV) ## Run the other tests: all of Spark, processes, browser, crashes; laws with more examples
	@$(PYTEST) --tier slow $(ARGS)

night: $(DEV) ## Run the long series: random search for laws, fifty kills, benchmarks in small, the whole demo (SEED=7 EXAMPLES=500)
	@seed=$${SEED:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; SEED=$$seed $(PYTEST) --tier night --hypothesis-seed=$$seed $(ARGS)

demo: $(DEV) ## Watch a small company at work, live in terminal and browser (ARGS="--seconds 90 --check", ARGS=crash)
	@$(BIN)/headwater demo $(ARGS)

bench: $(DEV) ## Measure, beside limits and peers (NAME=log)
	@$(BIN)/python -m benchmarks.$(NAME) $(ARGS)

crash: $(DEV) ## Kill the log at every durable step, and look what is left (ARGS="--runs 100", ARGS="--history --minutes 15")
	@$(BIN)/python -m tests.crash.run $(ARGS)

chaos: $(DEV) ## Kill a query, a whole App, and a capture at every step, and compare what they wrote (ARGS="--what capture --database postgres --kills 100")
	@$(BIN)/python -m tests.chaos.run $(ARGS)

docs: $(DOCS) ## Build the documentation into build/docs; a warning is an error
	@$(BIN)/python tools/reference.py
	@$(BIN)/python tools/cli_reference.py
	@$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet docs build/docs
	@echo "Open build/docs/index.html"

lint: $(DEV) ## Check style, types, the direction of imports, and that the reference is in step with the code
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python tools/reference.py --check
	@$(BIN)/python tools/cli_reference.py --check

format: $(DEV) ## Put all code into the one format, and the reference in step with it
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .
	@$(BIN)/python tools/reference.py
	@$(BIN)/python tools/cli_reference.py

lock: $(DEV) ## Lock the newest dependencies that pyproject.toml allows
	@$(COMPILE) requirements/uv.in --output-file requirements/uv.lock
	@$(COMPILE) pyproject.toml --extra dev --output-file requirements/dev.lock
	@$(COMPILE) pyproject.toml --extra docs --constraints requirements/dev.lock --output-file requirements/docs.lock
	@$(COMPILE) requirements/build.in --output-file requirements/build.lock
	@$(COMPILE) pyproject.toml $(SERVER) --constraints requirements/dev.lock --output-file requirements/server.lock
	@$(COMPILE) pyproject.toml $(APP) --constraints requirements/dev.lock --output-file requirements/app.lock
	@! grep -nE '://|^ *-' requirements/*.lock | grep -v -e '--hash=' || { echo "A lock file holds an address." >&2; exit 1; }

clean: ## Delete .venv and everything that was built
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(DEV): requirements/uv.lock requirements/dev.lock pyproject.toml tools/setup
	@PYTHON=$(PYTHON) tools/setup dev
	@touch $@

$(DOCS): $(DEV) requirements/docs.lock
	@PYTHON=$(PYTHON) tools/setup docs
	@touch $@
