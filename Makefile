# make book    run every notebook, build the site, print where it is
# make test    unit tests, notebook pairs, every notebook
# make audit   open every page of the built site in a real browser
# make lab     JupyterLab on the notebooks (more of its options in LAB_FLAGS)
# make clean   remove what the tools built (not the environment)
#
# Needs Python 3.11 to 3.13 and a package index. A second run installs nothing.

PYTHON ?= python3
VENV ?= .venv
PINS ?= constraints.txt
# An index to take torch from, where the plain package is a CUDA build of gigabytes.
TORCH_INDEX ?=
PY := $(VENV)/bin/python

export PYTHONUTF8 := 1

.PHONY: book test audit lab clean setup fetch execute site pairs lint unit coverage
.PHONY: lock help

help:
	@sed -n 's/^# //p' Makefile

setup:
	@$(PYTHON) tools/setup_env.py --venv $(VENV) --pins $(PINS) \
		--torch-index "$(TORCH_INDEX)"

fetch: setup
	@$(PY) -m specbook fetch

book: fetch
	@$(PY) tools/execute.py
	@$(PY) tools/build_site.py

# A test that needs the target may not be skipped here: it has just been fetched.
test: export SPECBOOK_TARGET_IS_FETCHED := 1
test: fetch lint unit
	@$(PY) tools/execute.py

lint: setup
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy specbook tools
	@$(PY) tools/pairs.py
	@$(PY) tools/readme.py
	@$(PY) tools/environment.py --check
	@$(PY) tools/lock.py --check --pins $(PINS)

# Two workers with one thread each; a worker keeps whole files, and so their fixtures.
unit: setup
	@OMP_NUM_THREADS=1 $(PY) -m pytest -q -n 2 --dist loadfile tests

# The unit tests again, with the share of the package's lines that they run, and which
# lines they do not. Lower than the least in pyproject.toml fails.
coverage: export SPECBOOK_TARGET_IS_FETCHED := 1
coverage: fetch
	@OMP_NUM_THREADS=1 $(PY) -m pytest -q -n 2 --dist loadfile --cov --cov-report=term tests

# The site, from the executions that `make book` or `make test` left.
site: setup
	@$(PY) tools/build_site.py

audit: setup
	@$(PY) tools/audit.py

# Make every .ipynb again from its .md, and the README's answer from the data.
pairs: setup
	@$(PY) tools/pairs.py --write --table
	@$(PY) tools/readme.py --write

# Record the installed versions and write environment.yml again.
lock: setup
	@$(PY) tools/lock.py --write
	@$(PY) tools/environment.py --write

# As root, which is what containers are, JupyterLab has to be told that it may.
LAB_FLAGS ?= $(if $(filter 0,$(shell id -u)),--allow-root)
# One file a chapter is listed, the one that runs; authors edit its .md elsewhere.
LAB_HIDES := $(foreach glob,*.md *.toml __pycache__,--ContentsManager.hide_globs='$(glob)')
lab: setup
	@$(PY) -m jupyter lab --notebook-dir=notebooks $(LAB_HIDES) $(LAB_FLAGS)

clean:
	rm -rf build dist .pytest_cache .ruff_cache .mypy_cache
