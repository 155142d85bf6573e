# Each target makes and fills the virtual environment .venv when it is missing or older than
# pyproject.toml. Only python3 and make are needed; another interpreter: make test PYTHON=python3.12

PYTHON ?= python3
JOBS ?= 2
OPTIONS ?=

VENV := .venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check -q
CREATED := $(VENV)/.created
RUNTIME := $(VENV)/.installed-runtime
TEST := $(VENV)/.installed-test
DEV := $(VENV)/.installed-dev
BROWSER := $(VENV)/.installed-browser
BENCH := $(VENV)/.installed-bench
SMALL_TABLES := airfoil,concrete,energy,yacht
# Those with a script of their own, and those with protocols; classification takes rows of images and texts.
OWN_SCRIPTS := samplers images texts stability split-hmc stochastic
EXPERIMENTS := uci calibration grad-evals classification diagnostics complexity datasize ablations presets pgps alternatives mixed-tables survival suite standard-splits
# What an installation is made of besides Python files.
SOURCES := pyproject.toml hatch_build.py $(wildcard src/mile/native/*.cpp src/mile/native/*.hpp)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
SECONDS ?= 600
.PHONY: help demo test test-slow test-browser test-sanitize test-fuzz coverage mutants bench paper paper-full lint format lock clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

demo: $(RUNTIME) ## fit a small table beside a ridge regression and an ensemble, and write a report
	@$(VENV)/bin/mile demo

# One file of tests stays in one process, so that each program is compiled once.
test: $(TEST) ## run the fast tests
	@$(VENV)/bin/python -m pytest -n $(JOBS) --dist loadfile

test-slow: $(TEST) ## run the slow statistical tests (up to two hours)
	@$(VENV)/bin/python -m pytest -m slow -n $(JOBS) --dist load --timeout 3600

coverage: $(DEV) ## run the fast tests and print which lines of the package they miss; fails below 93 %
	@$(VENV)/bin/python -m pytest -n $(JOBS) --dist loadfile --cov --cov-report=term:skip-covered

mutants: $(TEST) ## make forty small mistakes, one at a time, and see whether the tests notice
	@$(VENV)/bin/python tests/mutation/run.py --jobs $(JOBS)

test-sanitize: $(TEST) ## random plans on the kernel, watched by address, undefined-behavior and thread sanitizers
	@$(VENV)/bin/python tests/sanitize/run.py --jobs $(JOBS) $(OPTIONS)

test-fuzz: $(TEST) ## altered files for SECONDS=600: manifests, records, models, tables
	@nice -n 10 $(VENV)/bin/python tests/fuzz/fuzz.py --seconds $(SECONDS) $(OPTIONS)

# Chromium is Debian's package, so it needs a system that has it and the right to install.
test-browser: $(BROWSER) ## open reports in headless Chromium (installed by apt-get if it is missing)
	@command -v chromium >/dev/null 2>&1 || { echo "Installing Chromium"; apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
		|| { echo "These tests need Chromium: install the package 'chromium' and run this again." >&2; exit 1; }
	@$(VENV)/bin/python -m pytest -m browser tests/browser

bench: $(RUNTIME) $(BENCH) ## measure speed against peers and write benchmarks/RESULTS.md (up to 30 minutes)
	@$(VENV)/bin/python benchmarks/run_all.py

# Rows are computed anew, into runs/paper/; the ones that the repository keeps stay as they are. What was stopped goes on.
# Data: MILE_DATA=FOLDER make paper, or they are downloaded. A rehearsal of minutes: make paper OPTIONS="--scale 0.01"
PAPER_RUN = $(VENV)/bin/mile paper run $(1) --again $(OPTIONS)
paper: $(RUNTIME) ## compute the paper's main tables here, as far as an hour on two cores goes
	@$(call PAPER_RUN,uci) --dataset $(SMALL_TABLES)
	@$(call PAPER_RUN,uci) --dataset bikesharing,protein --splits 1 --methods MILE,DE,DE-0.01
	@$(call PAPER_RUN,calibration) --dataset $(SMALL_TABLES)
	@$(call PAPER_RUN,calibration) --dataset bikesharing,protein --splits 1
	@$(call PAPER_RUN,grad-evals)
	@$(call PAPER_RUN,classification) --dataset ionosphere
	@$(call PAPER_RUN,complexity)
	@$(call PAPER_RUN,datasize)

paper-full: $(RUNTIME) ## compute all tables of the paper here, by both protocols (many hours; mile paper list)
	@set -e; for name in $(OWN_SCRIPTS); do $(call PAPER_RUN,$$name); done
	@set -e; for name in $(EXPERIMENTS); do $(call PAPER_RUN,$$name) --protocol all; done

lint: $(DEV) ## check style, formatting and types
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .
	@$(VENV)/bin/pyright --pythonpath $(VENV)/bin/python

format: $(DEV) ## rewrite the code in the house format
	@$(VENV)/bin/ruff check --fix .
	@$(VENV)/bin/ruff format .

lock: ## write requirements.lock anew (Python 3.11 on Linux)
	@$(PYTHON) -c 'import sys; sys.exit(sys.platform != "linux" or sys.version_info[:2] != (3, 11))' \
		|| { echo "The lock file is made with Python 3.11 on Linux: make lock PYTHON=python3.11" >&2; exit 1; }
	@echo "Resolving the newest versions that pyproject.toml allows (about 2 minutes)"
	@set -e; folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
	$(PYTHON) -m venv "$$folder/venv"; \
	$(PYTHON) -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb")); \
	extra = p["project"]["optional-dependencies"]; \
	wanted = sum((extra[name] for name in ("test", "arviz", "text", "flax", "equinox", "dask", "onnx")), p["project"]["dependencies"]); \
	wanted += p["build-system"]["requires"]; \
	print("\n".join(line for line in wanted if not line.startswith("mile-bnn")))' \
		> "$$folder/wanted"; \
	"$$folder/venv/bin/python" -m pip --disable-pip-version-check install -q -r "$$folder/wanted"; \
	{ echo "# Exact versions for Python 3.11 on Linux: runtime, tests and build backend. Written by: make lock"; \
	  "$$folder/venv/bin/python" -m pip --disable-pip-version-check freeze | grep -E '^[A-Za-z0-9._-]+=='; \
	} > "$$folder/lock"; \
	cp "$$folder/lock" requirements.lock
	@echo "Wrote requirements.lock"

clean: ## remove .venv and everything that builds and tests leave behind
	@rm -rf $(VENV) benchmarks/.venv-bde build dist .pytest_cache .ruff_cache .hypothesis
	@find src tests experiments benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# -- the virtual environment -------------------------------------------------------------------------
# A stamp is written only when its step has succeeded, so an interrupted one is simply done again.

$(CREATED):
	@command -v $(PYTHON) >/dev/null 2>&1 \
		|| { echo "There is no '$(PYTHON)' here. MILE needs Python 3.11, 3.12 or 3.13: make PYTHON=/path/to/python ..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
		|| { echo "MILE needs Python 3.11, 3.12 or 3.13, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name another one: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "Setting up $(VENV) (about 2 minutes, once)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# The build backend, and JAX for its headers, are installed beside the package: with them in place a later
# change of pyproject.toml that asks for nothing new needs no network.
define install
@echo "Installing MILE and $(1) into $(VENV)"
@$(PIP) install 'hatchling>=1.27,<2' 'jax>=0.10.2,<0.13'
@$(PIP) install --no-build-isolation -e '.$(2)'
endef

$(RUNTIME): $(SOURCES) | $(CREATED)
	$(call install,what it needs)
	@touch $@

$(TEST): $(SOURCES) | $(CREATED)
	$(call install,the test tools,[test])
	@touch $(RUNTIME) $@

$(BROWSER): $(SOURCES) | $(CREATED)
	$(call install,the browser tests' tools,[browser])
	@touch $(RUNTIME) $(TEST) $@

# Without PyTorch the benchmarks of images and texts have no peer, and say so.
$(BENCH): | $(RUNTIME)
	@echo "Installing PyTorch into $(VENV), to compare with"
	@$(PIP) install 'torch==2.13.0' || echo "PyTorch could not be installed: the benchmarks go on without it." >&2
	@touch $@

$(DEV): $(SOURCES) | $(CREATED)
	$(call install,the development tools,[dev])
	@touch $(RUNTIME) $(TEST) $@
