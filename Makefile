# Everything runs in .venv, which the first command makes from constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: help reproduce test lint types bench ledger names notebook docs site clean

help:  ## what there is to make
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

$(VENV)/.installed: pyproject.toml constraints.txt Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "saccade needs Python 3.11 or newer; point PYTHON to one: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[lab,page,text]'
	@touch $@

$(VENV)/.extras: $(VENV)/.installed
	$(PIP) --editable '.[lab,page,dev,docs,bench,cluster,glove,onnx,text,torch]'
	@touch $@

reproduce: $(VENV)/.installed  ## run every study on its quick preset, print the ledger, write report.html
	$(BIN)/saccade reproduce

test: lint types  ## lint, types and tests
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n 2 --dist worksteal

lint: $(VENV)/.extras  ## style and layering
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: $(VENV)/.extras  ## static types
	$(BIN)/basedpyright

bench: $(VENV)/.extras  ## the engine against the plain PyTorch loop, as ratios
	$(BIN)/python benchmarks/against_torch.py
	$(BIN)/python benchmarks/topics_and_kernels.py
	$(BIN)/python benchmarks/recurrent.py
	$(BIN)/python benchmarks/text_classifier.py
	$(BIN)/python benchmarks/translator.py
	$(BIN)/python benchmarks/encoder.py
	$(BIN)/python benchmarks/fused_attention.py
	$(BIN)/python benchmarks/attention_bound.py
	$(BIN)/python benchmarks/recording_and_memory.py
	$(BIN)/python benchmarks/watching.py

ledger: $(VENV)/.installed  ## docs/ledger.md from the committed records
	$(BIN)/saccade ledger results -o docs/ledger.md

names: $(VENV)/.installed  ## the public names of the package, in src/saccade/__init__.pyi
	$(BIN)/python -m saccade.names

notebook: $(VENV)/.extras  ## docs/tutorial.ipynb from docs/tutorial.md, with what its cells print
	$(BIN)/python docs/notebook.py

docs: $(VENV)/.extras ledger names  ## the ledger, the public names, and the site with theory pages and API reference, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

site: docs  ## the same as docs

clean:  ## remove what was made here, but for the runs
	rm -rf $(VENV) report.html .pytest_cache .ruff_cache .hypothesis
