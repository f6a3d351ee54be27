# Two commands on a fresh machine: `make train` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# torch is pinned to the release that is quick to install here; pyproject.toml has the tested range.
TORCH := torch==2.13.0

.PHONY: train digits test sweep lint bench clean
.DEFAULT_GOAL := test

$(VENV)/.ready: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade-strategy only-if-needed "$(TORCH)"
	$(BIN)/python -m pip install --quiet --editable ".[test,dev,examples]" "$(TORCH)"
	touch $@

train: $(VENV)/.ready  ## train the example GPT, then sample from it
	$(BIN)/python examples/gpt.py $(ARGS)

digits: $(VENV)/.ready  ## train the example CNN on handwritten digits
	$(BIN)/python examples/digits.py $(ARGS)

test: $(VENV)/.ready  ## the whole test suite but the sweeps
	$(BIN)/python -m pytest -n 2 -m "not sweep" $(ARGS)

sweep: $(VENV)/.ready  ## slow sweeps: thousands of random programs
	$(BIN)/python -m pytest -m sweep $(ARGS)

lint: $(VENV)/.ready  ## ruff and the type checker
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.ready  ## the benchmark table
	$(BIN)/python -m pip install --quiet --editable ".[bench]" "$(TORCH)"
	$(BIN)/python -m tools.bench $(ARGS)

clean:
	rm -rf $(VENV) build *.egg-info
