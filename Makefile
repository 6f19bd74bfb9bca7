# Needs Python 3.11 and make. Everything installs into virtual environments inside the repository.

PYTHON ?= python3.11
DEMO := .venv
DEV := .venv-test
BIN := $(DEV)/bin
JOBS ?= 2

FOLDERS := dialects passes frontends backend runtime tools
SOURCES := pyproject.toml $(shell find $(FOLDERS) -name '*.py' -o -name '*.toml' -o -name py.typed)

# One thread per process: the tests themselves run side by side.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: help demo test check format format-check lint types repo docs docs-check site tests-check pytest lit clean

help:
	@echo "make demo    compile, run, compare and profile an attention model"
	@echo "make test    every check: format, lint, repository, docs, types, lit, pytest"
	@echo "make format  format the code        make docs  write the generated pages of docs/"
	@echo "make site    write the documentation as static pages, to build/site"
	@echo "make check   all of test but the tests themselves"
	@echo "make clean   remove environments and build output"

demo: $(DEMO)/installed
	@$(DEMO)/bin/python examples/attention_demo.py
	@echo; echo "next: $(DEMO)/bin/headrace plan model.onnx, or $(DEMO)/bin/headrace --help"

test: check lit pytest

check: format-check lint repo docs-check site tests-check types

# A plain install: what a user gets. build/lib would carry deleted modules into the next wheel.
$(DEMO)/installed: $(SOURCES)
	@echo "installing Headrace and what it needs into $(DEMO)"
	@test -x $(DEMO)/bin/python || $(PYTHON) -m venv $(DEMO)
	@rm -rf build/lib build/bdist.*
	@$(DEMO)/bin/python -m pip install --quiet .
	@touch $@

# An editable install: what a developer gets.
$(DEV)/installed: pyproject.toml
	@echo "installing Headrace and the tools of its tests into $(DEV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(DEV)
	@$(BIN)/python -m pip install --quiet --editable '.[test,docs]'
	@touch $@

format: $(DEV)/installed
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

format-check: $(DEV)/installed
	$(BIN)/ruff format --check

lint: $(DEV)/installed
	$(BIN)/ruff check

repo: $(DEV)/installed
	$(BIN)/python -m headrace.tools.check_repo

docs: $(DEV)/installed
	$(BIN)/python -m headrace.tools.docs

docs-check: $(DEV)/installed
	$(BIN)/python -m headrace.tools.docs --check

# The documentation as static pages that need no network: build/site/index.html.
site: $(DEV)/installed
	$(BIN)/python -m headrace.tools.docs.site

tests-check: $(DEV)/installed
	$(BIN)/python -m headrace.tools.update_tests --check

types: $(DEV)/installed
	$(BIN)/python -m headrace.tools.check_types

lit: $(DEV)/installed
	$(BIN)/python test/run_lit.py

# The .mlir files have run as lit tests, each in a fresh fork.
pytest: $(DEV)/installed
	$(BIN)/python -m pytest -n $(JOBS) --ignore-glob='*.mlir'

clean:
	rm -rf $(DEMO) $(DEV) build *.egg-info
