# Every target does all of its own set-up in .venv; the second time there is nothing left to do.
PYTHON ?= python3
BIN := .venv/bin
DEMO := .venv/.demo
READY := .venv/.ready
# Small models gain nothing from threads, and two test processes fill two cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -o faulthandler_timeout=600

# requirements.lock has the version and the hashes of every package but torch. Which of torch's files pip takes, for a CPU or with
# CUDA, and so its hash and what it needs, is a matter of the machine; its version is set here. Older pips know no --no-require-hashes,
# by which everything that has a hash in the lock is checked and torch may have none.
PIP := -m pip --quiet --disable-pip-version-check install
NEW_PIP := --upgrade 'pip>=26.2'
LOCKED := --no-require-hashes -c requirements.lock
TORCH := torch==2.13.0
# torchvision needs the torch that it was built with, and timm needs torchvision: they have an environment of their own.
ZOO := torch==2.15.0 torchvision==0.29.2 timm==1.0.30
# Libraries that DRQ works with; torchattacks names others that it does not use, torchvision among them.
COMPAT := captum==0.9.0 torchmetrics==1.9.0 lightning==2.6.6 adversarial-robustness-toolbox==1.20.1 onnx==1.23.2 onnxruntime==1.31.1 onnxscript==0.7.2
COMPAT_ALONE := torchattacks==3.5.1

.PHONY: help setup demo test test-slow check-records test-zoo test-compat lint format lock map pages docs theory screenshots benchmarks release

help:
	@echo "make demo       train a small classifier and see DRQ at work (installs 1.5 GB in a minute or two, then two minutes)"
	@echo "make test       lint, types, layers, and the tests that take seconds each (installs 2 GB more, then five minutes)"
	@echo "make test-slow  the tests that take longer; with DRQ_TEST_ASSETS=<folder> also those on CIFAR-10 models"
	@echo "make check-records  that records are whole, that pages show what they hold, and that they hold what is claimed"
	@echo "make test-zoo   DRQ on real models of timm, torchvision and transformers (installs 6 GB, then two minutes)"
	@echo "make test-compat  every row of docs/works-with.md with the real library (installs 1.5 GB, then three minutes)"
	@echo "make lint       ruff, mypy, the layers of the code, and its map"
	@echo "make lock       bring requirements.lock up to what pyproject.toml asks for"
	@echo "make format     let ruff rewrite the files"
	@echo "make docs       build the documentation into site/ (python -m http.server -d site shows it)"
	@echo "make map        write the map of the code in CONTRIBUTING.md from the docstrings"
	@echo "make pages      write what README and docs show of the records in results/: tables, the ledger, peers, presets"
	@echo "make benchmarks measure attacks, red team, spatial shifts and speed anew (a GPU; DRQ_TEST_ASSETS=<folder>)"
	@echo "make screenshots  take the pictures in docs/playground.md anew (a Chromium; half a minute)"
	@echo "make theory     measure how far the search departs from the propositions, for docs/theory.md"
	@echo "make release    build sdist and wheel into dist/, and test both in empty environments (ten minutes); with TAG=v1.2.3 also its tag"

setup: $(READY)

$(DEMO): pyproject.toml requirements.lock
	@echo "installing what the demo needs into .venv (a minute or two)"
	$(PYTHON) -m venv .venv
	$(BIN)/python $(PIP) $(NEW_PIP)
	$(BIN)/python $(PIP) $(LOCKED) $(TORCH) -e '.[demo]'
	@touch $@

$(READY): $(DEMO)
	@echo "installing the rest of requirements.lock into .venv (a minute or two)"
	$(BIN)/python $(PIP) --no-deps --require-hashes -r requirements.lock
	@touch $@

lock: $(DEMO)
	$(BIN)/python $(PIP) --group lock
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet pyproject.toml \
		--extra app --extra attacks --extra imagenet --extra ray --extra text --group test --universal --python-version 3.11 \
		--generate-hashes --no-annotate --no-emit-package torch --output-file requirements.lock

demo: $(DEMO)
	$(BIN)/drq demo

test: lint
	$(PYTEST) -m "not slow"

test-slow: $(READY)
	$(PYTEST) -m slow

check-records: $(READY)
	$(PYTEST) tests/records

.venv-zoo/.ready: pyproject.toml requirements.lock
	@echo "installing into .venv-zoo (some minutes)"
	$(PYTHON) -m venv .venv-zoo
	.venv-zoo/bin/python $(PIP) $(NEW_PIP)
	.venv-zoo/bin/python $(PIP) $(LOCKED) $(ZOO) -e '.[zoo]' pytest
	@touch $@

test-zoo: .venv-zoo/.ready
	OMP_NUM_THREADS=1 .venv-zoo/bin/python -m pytest tests/zoo --confcutdir=tests/zoo -p no:cacheprovider -o faulthandler_timeout=600

.venv-compat/.ready: pyproject.toml requirements.lock Makefile
	@echo "installing into .venv-compat (a minute or two)"
	$(PYTHON) -m venv .venv-compat
	.venv-compat/bin/python $(PIP) $(NEW_PIP)
	.venv-compat/bin/python $(PIP) $(LOCKED) $(TORCH) $(COMPAT) -e '.[attacks,demo]' pytest
	.venv-compat/bin/python $(PIP) --no-deps $(COMPAT_ALONE)
	@touch $@

test-compat: .venv-compat/.ready
	OMP_NUM_THREADS=1 .venv-compat/bin/python -m pytest tests/compat --confcutdir=tests/compat -p no:cacheprovider -o faulthandler_timeout=600

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache
	$(BIN)/python tools/map.py --check

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

theory: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python -m tools.benchmarks.propositions

map: $(READY)
	$(BIN)/python tools/map.py

pages: $(READY)
	$(BIN)/python -m tools.pages

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "site/index.html"

screenshots: $(READY)
	$(BIN)/python -m tools.screenshots

benchmarks: $(READY)
	$(BIN)/python -m tools.benchmarks.attacks
	$(BIN)/python -m tools.benchmarks.spatial --images 1000
	$(BIN)/python -m tools.benchmarks.near_ties
	$(BIN)/python -m tools.benchmarks.gpu_time
	$(BIN)/python -m tools.benchmarks.step_rules
	$(BIN)/python -m tools.benchmarks.plane_time

release: $(READY)
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	DRQ_DIST=dist DRQ_TAG=$(TAG) OMP_NUM_THREADS=1 $(BIN)/pytest tests/release -o faulthandler_timeout=600
