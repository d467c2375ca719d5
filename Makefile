# unity-dsl: every task is one command; each brings the environment it needs.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# More tests at once than cores makes the tests that start ranks slower, not faster.
WORKERS ?= $(shell nproc)
FUZZ_CASES ?= 200
DEMO := build/demo

.PHONY: help setup check format test test-everything demo fuzz check-examples bench clean

help: ## print this help
	@sed -nE 's/^([a-z-]+):.*## (.*)$$/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

setup: $(VENV)/.ready ## make .venv with the pinned development environment

$(VENV)/.ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("unity-dsl needs Python 3.11 or newer; set PYTHON=…")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (the first time takes minutes: it fetches torch)"
	$(BIN)/python -m pip install --quiet "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet --editable '.[dev]' --constraint constraints.txt
	@touch $@

check: setup ## lint, formatting, types, words of the documents and what shows their claims
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_words.py tests/test_claims.py

format: setup ## format Python, .uop, .udl and .rules files in place
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/unityc fmt ops/*.uop examples/*.udl rules/*.rules tests/cases/{proved,refuted}/*.rules

test: setup ## the whole test suite
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

test-everything: setup ## the same, with every case of which `test` takes others every day
	UNITY_EVERYTHING=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal

demo: setup ## compile examples/digits.udl for 2 devices, train it on 2 local ranks, check it
	rm -rf $(DEMO)
	$(BIN)/unityc examples/digits.udl --output $(DEMO) --machine local --devices 2
	OMP_NUM_THREADS=1 $(BIN)/torchrun --standalone --nproc-per-node 2 $(DEMO)/train.py \
	  --data digits --steps 300 --lr 0.003 | tee $(DEMO).log
	@awk '/^test accuracy/ { reached = $$3 } END { exit !(reached >= 0.95) }' $(DEMO).log \
	  || { echo "the test accuracy is below 0.95"; exit 1; }
	$(BIN)/unityc check $(DEMO) --ranks 2

fuzz: setup ## check random models under random plans on 1, 2 and 4 ranks (FUZZ_CASES=200)
	UNITY_FUZZ_CASES=$(FUZZ_CASES) $(BIN)/python -m pytest -q tests/fuzz

check-examples: setup ## check every example under every strategy on 1, 2 and 4 ranks; goes on where it stopped
	$(BIN)/python bench/check_examples.py

bench: setup ## measure again every figure that is quoted, into bench/results/
	$(BIN)/python bench/startup_time.py
	$(BIN)/python bench/compile_scale.py
	$(BIN)/python bench/memory_limit_time.py
	$(BIN)/python bench/search_time.py
	$(BIN)/python bench/simulator.py
	$(BIN)/python bench/mechanisms.py
	$(BIN)/python bench/offload.py
	$(BIN)/python bench/padding.py
	$(BIN)/python bench/search_loop.py
	$(BIN)/python bench/search_ablation.py
	$(BIN)/python bench/rival_plans.py
	$(BIN)/python bench/utilisation.py --leave-one-out
	$(BIN)/python bench/check_time.py
	$(BIN)/python bench/rules_time.py
	$(BIN)/python bench/prove_time.py
	$(BIN)/python bench/check_rules.py
	$(BIN)/python bench/apply_rules.py
	$(BIN)/python bench/audit.py
	$(BIN)/python bench/partial_equivalence.py
	$(BIN)/python bench/sharding_rules.py
	$(BIN)/python bench/adversary.py
	$(BIN)/python bench/adversary.py --without-numbers

clean: ## remove build results and caches, keep .venv
	rm -rf build dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find unity_dsl tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
