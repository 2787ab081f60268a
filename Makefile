# demo, test, check, bench: each sets up .venv by itself; a second run reuses it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test check bench clean

demo: $(VENV)/.demo
	$(BIN)/foretell predict timm:resnet50 --batch 256 --precision amp-bf16 --channels-last \
	    --optimizer momentum --cluster 8xa100-80gb --epochs 90 --samples 1281167
	$(BIN)/foretell predict hf:meta-llama/Llama-3.1-8B --seq 4096 --batch 1 --precision bf16 \
	    --master-weights --recompute full --cluster 4x8xh100-sxm --zero 3 --global-batch 256 \
	    --tokens 1e10

test: $(VENV)/.dev
	$(BIN)/python -m pytest

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_exports.py

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	$(PIP) -e '.[timm,hf,schedule]'
	touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	$(PIP) -e '.[dev]'
	touch $@ $(VENV)/.demo
