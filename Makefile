# Two commands: `make demo` and `make test`. Each sets up everything it needs in .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test test-slow check format clean

demo: $(READY)
	$(BIN)/unmasked demo --out demo

# as many processes as there are cores, one thread each, a file's tests in one of them
test: check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test-slow: $(READY)
	$(BIN)/python -m pytest -m slow -s

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; run: make PYTHON=/path/to/python3.11 ...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[dev]"
	@touch $@

clean:
	rm -rf .venv demo build *.egg-info
