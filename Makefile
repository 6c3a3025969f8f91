# Two commands: `make demo` shows what FedTailor does, `make test` shows that it is right.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: help demo demo-hospitals policies install test lint unit browser coverage test-slow test-federation benchmark bench-peers mutants lock docs clean

help:
	@echo "make demo       install and compare four baselines with the five systems on bundled data (about a minute)"
	@echo "make demo-hospitals  the same on four hospitals"
	@echo "make test       install what tests need; lint, types, tests"
	@echo "make browser    install Debian's chromium, for the tests of pages; without it they are skipped"
	@echo "make coverage   the same tests, and which lines they leave out; fails below 90 %"
	@echo "make test-slow  the proofs that take minutes"
	@echo "make test-federation  a real federation on this machine, and everything that can go wrong in it"
	@echo "make benchmark  speed and memory as ratios (needs FEDTAILOR_DATA with fashion-mnist)"
	@echo "make bench-peers  the same rounds in FedTailor, plain torch, Flower and pfl, as ratios (about ten minutes)"
	@echo "make mutants    change the code in 500 small ways and count how many the tests notice (about an hour)"
	@echo "make policies   train the built-in policies again (needs FEDTAILOR_DATA with mnist, usps, mnist-m)"
	@echo "make docs       the documentation as a site in build/site"
	@echo "make lock       write the lock files again after a change of pyproject.toml"
	@echo "make clean      remove the environment and caches (runs/ stays)"

demo: .venv/installed
	@echo "to type fedtailor commands in this terminal, first: source $(BIN)/activate"
	$(BIN)/fedtailor compare recipes/demo/digits.toml

demo-hospitals: .venv/installed
	$(BIN)/fedtailor compare recipes/demo/hospitals.toml

install: .venv/installed

# one after the other, each written when it is done; without --again only those that are missing
policies: .venv/installed
	$(BIN)/python recipes/policies/train.py --again
	$(BIN)/python recipes/policies/judge.py

test: lint unit

lint: .venv/tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# three on two cores: the tests of a federation mostly wait
UNIT := $(BIN)/python -m pytest -n 3 --dist worksteal -m "not slow"

unit: .venv/tested
	$(UNIT)

# for the tests of pages, which are skipped without it and fail without it in continuous integration
browser:
	command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium; }

# measuring takes 1.6 times as long; the bound is in pyproject.toml
coverage: .venv/tested
	$(UNIT) --cov --cov-report=term-missing

test-slow: .venv/tested
	$(BIN)/python -m pytest -m slow

test-federation: .venv/tested
	$(BIN)/python -m tests.support.federation_report

benchmark: .venv/installed
	$(BIN)/python benchmarks/publish.py

# each peer in an environment of its own; the benchmark names one that cannot be installed
PEERS := build/peers
PEER_INSTALL = $(PYTHON) -m venv $(PEERS)/$(1) && $(PEERS)/$(1)/bin/python -m pip install --quiet \
	--disable-pip-version-check torch==2.13.0 && $(PEERS)/$(1)/bin/python -m pip install --quiet --disable-pip-version-check '$(2)'

$(PEERS)/installed:
	mkdir -p $(PEERS)
	-$(call PEER_INSTALL,flower,flwr[simulation])
	-$(call PEER_INSTALL,pfl,pfl[pytorch])
	@touch $@

bench-peers: .venv/installed $(PEERS)/installed
	$(BIN)/python benchmarks/publish.py peers

mutants: .venv/tested
	$(BIN)/python -m tests.support.mutants

docs: .venv/tested
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir build/site
	@echo "to read it, open build/site/index.html (it needs no server and no network, and neither does its search)"

# torch first and alone: as a dependency of another package it would bring several GB of CUDA builds along
.venv/torch:
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	@touch $@

# the versions and hashes of the lock files; the package itself is built with the locked setuptools
LOCKED := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement
SELF := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .

.venv/installed: .venv/torch pyproject.toml setup.py requirements/core.lock
	$(LOCKED) requirements/core.lock
	$(SELF)
	@touch $@

.venv/tested: .venv/installed requirements/dev.lock
	$(LOCKED) requirements/dev.lock
	@touch $@

lock: .venv/tested
	$(BIN)/python requirements/lock.py $(OPTIONS)

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
