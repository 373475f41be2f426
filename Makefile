# The two commands of the README are `make demo` and `make test`; both set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TORCH ?= torch==2.13.0

# Two busy threads on a small shared machine wait on each other.
export OMP_NUM_THREADS ?= 1

# Modules are compiled once, and not in each of the hundreds of processes that tests start.
unexport PYTHONDONTWRITEBYTECODE

# All cores; tests/conftest.py keeps a small selection in one process. Idle workers take tests from busy ones.
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal

.PHONY: help demo test test-slow coverage lint types size docs notebooks bench bench-all growth dist clean

help:
	@echo "make demo       train a small question-answering model on text it makes up, and show what it says"
	@echo "make test       run the test suite on all cores; the last line says how long it took"
	@echo "make test-slow  run the tests marked slow as well"
	@echo "make coverage   the suite with the share of lines that it runs, at least 90 %"
	@echo "make lint       ruff: rules and format"
	@echo "make types      mypy, strict"
	@echo "make size       count code, comments and what the Trainer holds, beside the limits"
	@echo "make docs       build the documentation as a site in site/, and check every link in it"
	@echo "make notebooks  make docs/notebooks/ from the pages again"
	@echo "make dist       build the wheel and the source package into dist/, and check them as an index would"
	@echo "make bench      footplate beside the loop of an expert: what is reached and what is not, in minutes"
	@echo "make bench-all  every other benchmark, with transformers, Lightning and Accelerate: more than an hour"
	@echo "make growth     how cost grows with tensors, rows, lines and checkpoints; draws docs/images/growth-*.svg"

# torch comes first and alone, so that nothing else chooses a build of it.
$(VENV)/.core: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "$(TORCH)" numpy
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $@

# Libraries that run on footplate, and Ray that starts it, in tests marked slow.
$(VENV)/.clients: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[clients,ray]"
	@touch $@

$(VENV)/.docs: $(VENV)/.core
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[docs]"
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[bench]"
	@touch $@

demo: $(VENV)/.core
	$(BIN)/python -m footplate.demo

test: $(VENV)/.dev
	$(PYTEST) -m "not slow" $(ARGS)

test-slow: $(VENV)/.clients
	$(PYTEST) $(ARGS)

coverage: $(VENV)/.dev
	$(PYTEST) -m "not slow" --cov --cov-report=term:skip-covered --cov-fail-under=90 $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

size:
	@$(PYTHON) tools/size.py $(ARGS)

dist: $(VENV)/.dev
	rm -rf dist build
	$(BIN)/python -m build --no-isolation --outdir dist .
	$(BIN)/python -m twine check --strict dist/*

docs: $(VENV)/.docs
	$(BIN)/python tools/build_site.py

notebooks:
	@$(PYTHON) tools/notebooks.py

bench: $(VENV)/.bench
	$(BIN)/python benchmarks/limits.py $(ARGS)

bench-all: $(VENV)/.bench
	$(BIN)/python benchmarks/run.py $(ARGS)

growth: $(VENV)/.bench
	$(BIN)/python benchmarks/growth.py $(ARGS)

clean:
	rm -rf $(VENV) build dist site .cache *.egg-info src/*.egg-info
