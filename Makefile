# make run    the daemon on a bundled real recording, or LOG=/var/log/sglang/server.log
# make test   the whole suite
SHELL := /bin/bash
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3.14 python3 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
SCENE ?= graphs
SPEED ?= 12
SOAK_SECONDS ?= 600

.DEFAULT_GOAL := help
.PHONY: help run test lint soak bench requirements sbom library clean

help:
	@sed -n 's/^# //p' Makefile | head -2
	@echo "also: make run SCENE=healthy|seed SPEED=20, make soak, make bench, make lint, make library, make requirements, make sbom"

run: $(VENV)/run
ifdef LOG
	$(BIN)/sglang-watchdog run "$(LOG)" --telemetry nvml --next-free-port --print-findings
else
	@$(BIN)/python deploy/demo.py --scene $(SCENE) --speed $(SPEED)
endif

test: $(VENV)/test
	$(BIN)/ruff check daemon tests deploy
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/sglang-watchdog signatures lint
	$(BIN)/sglang-watchdog signatures matrix --check
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal --ignore tests/e2e --ignore tests/deploy $(PYTEST)
	$(BIN)/python -m pytest tests/e2e tests/deploy $(PYTEST)  # real daemons, one after the other

lint: $(VENV)/test
	$(BIN)/ruff check daemon tests deploy && $(BIN)/mypy && $(BIN)/lint-imports --no-cache && $(BIN)/sglang-watchdog signatures lint

soak: $(VENV)/test
	SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/python -m pytest -m soak -s tests

bench: $(VENV)/test
	for bench in tests/bench/*.py; do echo "== $$bench"; PYTHONPATH=tests $(BIN)/python $$bench || exit 1; done

# Exact versions with hashes, from the ranges in pyproject.toml.
requirements: $(VENV)/test
	$(BIN)/pip install -q pip-tools
	$(BIN)/pip-compile -q --generate-hashes --no-emit-index-url --no-emit-trusted-host --strip-extras --no-header \
		-o deploy/requirements.txt pyproject.toml
	$(BIN)/pip-compile -q --generate-hashes --no-emit-index-url --no-emit-trusted-host --strip-extras --no-header --allow-unsafe \
		--extra dev -o tests/requirements.txt pyproject.toml
	$(MAKE) sbom

# What an installation consists of, as CycloneDX: deploy/sbom.cdx.json.
sbom: $(VENV)/test
	$(BIN)/python deploy/sbom.py > deploy/sbom.cdx.json.new && mv deploy/sbom.cdx.json.new deploy/sbom.cdx.json

$(VENV)/bin/python:
	@if [ -z "$(PYTHON)" ]; then echo "Python 3.11 or newer is needed and was not found."; \
		echo "  Debian, Ubuntu: sudo apt install python3 python3-venv     Fedora, RHEL: sudo dnf install python3.12"; \
		echo "  without root:   https://docs.astral.sh/uv/ and then: uv python install 3.12; make run PYTHON=\$$(uv python find 3.12)"; exit 1; fi
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "The venv module is missing: sudo apt install python3-venv (or python3.12-venv for that version)"; exit 1; }

$(VENV)/run: $(VENV)/bin/python deploy/requirements.txt pyproject.toml
	@echo "Setting up (once) …"
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r deploy/requirements.txt
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps -e .
	@touch $@

$(VENV)/test: $(VENV)/run tests/requirements.txt
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r tests/requirements.txt
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
