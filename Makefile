# Two commands do everything on a fresh machine, the environment included:
#   make run    sets up, then discovers an update rule from nothing and shows it
#   make test   sets up, then checks style, types and behavior
# make lint and make pytest are its two halves; make test-all also runs the tests
# that are slow, such as whole runs that are killed, notebooks and several processes.
# make docs builds the documentation, site/index.html; make test does so, too.
# PYTHON=python3.12 chooses the interpreter (3.11 or later);
# EXTRAS=dev,environments tests the suites of environments as well.

PYTHON ?= python3
VENV ?= .venv
EXTRAS ?= dev
BIN = $(VENV)/bin
# Editable packages make setuptools warn of folders of their names.
INSTALL = PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet
WORKDIR ?= runs/quickstart

.PHONY: run test test-all pytest lint docs

run: $(VENV)/.installed
	@echo "$$ABOUT"
	@$(BIN)/python -m launch.meta_train --config=configs/quickstart.py \
	  --workdir=$(WORKDIR)
	@echo 'Now new agents learn by the rule, and others for comparison.'
	@$(BIN)/python -m launch.showcase --workdir=$(WORKDIR) \
	  --environment=catch/7x6

define ABOUT
Discovering a rule takes about seven minutes on two cores, one of them
compiling. Eight agents learn Catch on boards of 2 to 7 rows (+1 for a ball that is
caught, -1 for one that is missed) by a rule that 1,000 meta-steps change so that they earn
more. "return" is their mean: -0.4 by random play, 1 at best. It falls when agents
are replaced by new ones. Each line on new agents, on a 6x5 board, tells what the
rule is worth: from -0.6, random play, to 1.
endef
export ABOUT

# What takes long begins first, so that no core waits at the end.
PYTEST = $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test: lint pytest

pytest: $(VENV)/.installed-$(EXTRAS)
	$(PYTEST)

test-all: lint
	$(PYTEST) -m ''

docs: $(VENV)/.installed-$(EXTRAS)
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: $(VENV)/.installed-$(EXTRAS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit( \
	  "Python 3.11 or later is needed; run make PYTHON=python3.11 ...")'
	@echo 'Creating $(VENV), about a minute.'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --upgrade pip
	@touch $@

$(VENV)/.installed: pyproject.toml | $(VENV)/.created
	@$(INSTALL) -e .
	@touch $@

$(VENV)/.installed-$(EXTRAS): pyproject.toml | $(VENV)/.created
	@$(INSTALL) -e '.[$(EXTRAS)]'
	@touch $@ $(VENV)/.installed
