# The one task runner. `make` alone lists what it can do.
BIN := .venv/bin
STAMP := .venv/.installed
# Nothing is installed that is not the very file that was pinned, nor built with tools that are not.
INSTALL := $(BIN)/pip install --quiet --require-hashes --no-build-isolation
DIST ?= dist
PYTHON ?= python3
KERNEL := $(wildcard src/topics/kernel/*.py src/topics/kernel/*.pyx src/topics/kernel/native/*.pxi)
.DEFAULT_GOAL := help
.PHONY: help setup pins format check test crash load planted torture torture-pipeline cluster bench bench-engine bench-pipeline docs dist run clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 18

setup: $(STAMP) ## make .venv and install everything a developer needs; quick when nothing changed

$(STAMP): requirements/build.txt requirements/dev.txt pyproject.toml $(wildcard setup.py) $(KERNEL)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		|| { echo "topics needs Python 3.11 or newer as '$(PYTHON)': install it, or run 'make setup PYTHON=python3.12'" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "'$(PYTHON)' has no venv module: on Debian or Ubuntu run 'apt-get install python3-venv'" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(INSTALL) --requirement requirements/build.txt
	$(INSTALL) --requirement requirements/dev.txt
	$(BIN)/pip install --quiet --no-build-isolation --no-deps --editable .
	@ls src/topics/kernel/_native*.so >/dev/null 2>&1 \
		|| echo "the native kernel was not built (is there a C compiler?): topics runs on its pure-Python twin, slower but the same"
	@touch $@

PIN := $(BIN)/uv pip compile --quiet --no-header --universal --python-version 3.11 --generate-hashes --upgrade

pins: ## refresh the pins in requirements/, with the hashes of what they name, from pyproject.toml
	$(PIN) --group dev --output-file requirements/dev.txt pyproject.toml
	$(PIN) --group build --constraint requirements/dev.txt --output-file requirements/build.txt
	$(PIN) --group bench --constraint requirements/dev.txt --output-file requirements/bench.txt pyproject.toml
	$(PIN) --group docs --constraint requirements/dev.txt --output-file requirements/docs.txt pyproject.toml
	$(PIN) --extra server --extra cli --constraint requirements/dev.txt --output-file requirements/server.txt pyproject.toml

format: setup ## rewrite the code into the house style
	$(BIN)/ruff check --fix --quiet . && $(BIN)/ruff format --quiet .

check: setup ## lint, types, import directions; changes nothing
	$(BIN)/ruff format --check --quiet . && $(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test: setup ## all tests that are not slow, then those of Spark in one session: about a quarter of an hour
	$(BIN)/pytest -n 2 -m "not slow and not spark"
	$(BIN)/pytest -m "spark and not slow"

crash: setup ## power cuts, disk faults, killed processes only
	$(BIN)/pytest -n 2 -m crash

load: setup ## a thousand watchers, and more writes than the server can take: two minutes
	$(BIN)/pytest -m slow tests/load

planted: setup ## plant known bugs one by one; the tests must catch each
	$(BIN)/pytest -n 2 tests/planted

torture: setup ## power cuts and kills until you stop it; prints its seed
	$(BIN)/python -m tests.torture

torture-pipeline: setup ## kill -9 of driver, worker and server under two streams, twenty times; prints its seed
	$(BIN)/python -m tests.torture_pipeline

cluster: setup ## the tests of the pipeline, spark-submit, a shipped package and Connect on a Spark cluster of two workers
	$(BIN)/python -m tests.cluster

bench: setup ## the server beside Redis, NATS, nginx and ASGI servers, as ratios in one run
	$(INSTALL) --requirement requirements/bench.txt
	$(BIN)/python -m benchmarks.server

bench-engine: setup ## how fast the engine is, as ratios in one run
	$(BIN)/python -m benchmarks.engine

bench-pipeline: setup ## Spark over topics beside Spark over files, as ratios in one run
	$(BIN)/python -m benchmarks.pipeline

docs: setup ## build the site into ./site; a warning is an error, and so is what a browser complains about
	$(INSTALL) --requirement requirements/docs.txt
	$(BIN)/mkdocs build --strict # not --quiet: then no warning is counted
	$(BIN)/python -m tests.browser.site site

dist: setup ## build the sdist, and from it the wheel with the compiled kernel, into ./dist; with the pinned tools of .venv
	rm -rf src/*.egg-info $(DIST)/topics_log-*
	$(BIN)/uv build --quiet --offline --no-build-isolation --python $(BIN)/python --out-dir $(DIST) .
	@rm -rf src/*.egg-info # on the path of a developer, where it would pass for an installation
	@$(BIN)/python -m zipfile --list $(DIST)/topics_log-*.whl | grep --quiet 'topics/kernel/_native.*\.so' \
		|| { echo "the wheel has no native kernel: is there a C compiler?" >&2; exit 1; }
	@ls $(DIST)/topics_log-*

run: setup ## server, console and pipeline on http://127.0.0.1:4000, data in ./topics-data and ./topics-lake; Ctrl-C stops it
	$(BIN)/topics up

clean: ## remove what was built, the venv and caches; data directories stay
	rm -rf .venv build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache src/*.egg-info
	rm -f src/topics/kernel/*.so src/topics/kernel/_native.c
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
