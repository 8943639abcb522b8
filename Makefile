# SPDX-License-Identifier: GPL-2.0-only
# make run    fetch, patch, build, boot, test, report
# make test   check the project itself

PYTHON := .venv/bin/python
REPORTS := reports
# The kernels that integration tests boot, with the series and without; built if need be.
KERNEL = $(shell $(PYTHON) -m ktest_ntcopy build)
UNPATCHED = $(shell $(PYTHON) -m ktest_ntcopy build --unpatched)

.PHONY: help run test setup setup-run lint unit integration series debug bench table mutants docs
.PHONY: fuzz clean

help:
	@echo 'make run      everything from nothing to $(REPORTS)/junit.xml: kernel source, series,'
	@echo '              C tests, build, boot, results'
	@echo 'make test     lint, unit tests, the series held to its gates, tests that boot'
	@echo 'make unit     tests without a virtual machine'
	@echo 'make fuzz     the hostile input of the unit tests, drawn anew and more of it'
	@echo 'make debug    the same as run on a kernel that watches itself (KASAN, lockdep, kmemleak,'
	@echo '              failures on demand), and what finds its leaks'
	@echo 'make bench    figures, each paired with its baseline'
	@echo 'make table    copy, zerocopy and MSG_ZEROCOPY_UARG beside the published figures'
	@echo 'make mutants  kernels with one thing broken, and the test that notices each'
	@echo 'make docs     write what is generated from the feature data'
	@echo 'make clean    remove .venv and $(REPORTS); the cache stays (~/.cache/ktest-ntcopy)'

setup-run:
	@setup/install run

setup:
	@setup/install run test

run: setup-run
	@$(PYTHON) -m ktest_ntcopy run --junitxml $(REPORTS)/junit.xml

test: setup
	@$(MAKE) --no-print-directory lint unit series integration

lint:
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	$(PYTHON) -m mypy
	$(PYTHON) -m ktest_ntcopy docs --check

unit:
	$(PYTHON) -m pytest -q -n auto tests/unit

series:
	$(PYTHON) -m ktest_ntcopy check-series --cross
	$(PYTHON) -m ktest_ntcopy mutants --check

integration:
	KTEST_KERNEL='$(KERNEL)' KTEST_KERNEL_UNPATCHED='$(UNPATCHED)' $(PYTHON) -m pytest -q -n auto tests/integration

fuzz: setup
	$(PYTHON) -m pytest -q -n auto -m hypothesis --hypothesis-profile=fuzz tests/unit

debug: setup
	@$(PYTHON) -m ktest_ntcopy run --debug --junitxml $(REPORTS)/debug.xml
	KTEST_KERNEL_DEBUG="$$($(PYTHON) -m ktest_ntcopy build --debug)" $(PYTHON) -m pytest -q tests/integration/test_debug_kernel.py

bench: setup
	@$(PYTHON) -m pip install -q --disable-pip-version-check -e '.[bench]'
	$(PYTHON) -m ktest_ntcopy.bench

table: setup-run
	@$(PYTHON) -m ktest_ntcopy zerocopy-table "$$($(PYTHON) -m ktest_ntcopy build)"

mutants: setup
	$(PYTHON) -m ktest_ntcopy mutants

docs: setup
	$(PYTHON) -m ktest_ntcopy docs

clean:
	rm -rf .venv $(REPORTS)
