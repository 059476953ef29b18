# make demo    a GEMM on this machine, checked against float64 (installs the core only; ≤ 20 s of CPU)
# make test    the tests that need no more than this machine (≤ 8 min on two cores)
# make test-all  the slow ones too, and test-torch; those that need a GPU run where there is one
# make test-torch  the tests that need PyTorch or JAX, in an environment with their wheels for CPUs
# make lint    ruff and mypy
# make clean   remove environments and caches
#
# The environment is made by scripts/env.sh; PYTHON=… picks the interpreter, NO_UV=1 does without uv.
# Tests run in a process for each core, four at most; SPREAD= is one. PYTEST_ARGS goes to pytest.

VENV ?= .venv-make/env
TORCH_VENV ?= .venv-make/torch
PYTEST_ARGS ?=
SPREAD ?= -n auto --maxprocesses 4
PLUGINS = -p xdist -p pytest_timeout -p _hypothesis_pytestplugin
DEMO ?= 512 512 512 --a f16 --b f16 --d f32

# the folders (tests/vm/engine …) and single files that have slow tests
parts = $(sort $(shell grep -rl --include='test_*.py' -e slow -e SLOW -e parts= tests | cut -d/ -f1-3))

# plugins that pytest finds by itself have the assertions of their whole packages rewritten
test test-all test-torch: export PYTEST_DISABLE_PLUGIN_AUTOLOAD = 1

# those that are skipped without torch or jax, and need no GPU
torch_tests = $(shell grep -rlE --include='test_*.py' 'importorskip\("(torch|jax)"\)' tests | grep -v -e _gpu -e docs)

.PHONY: demo test test-all test-torch lint clean core-env test-env torch-env

demo: core-env
	$(VENV)/bin/tilewright gemm $(DEMO)

test: test-env
	$(VENV)/bin/python -m pytest $(PLUGINS) -q -m "not slow" $(SPREAD) $(if $(SPREAD),--dist loadfile) $(PYTEST_ARGS)

# a process for each part: what one compiled is given back
test-all: export TILEWRIGHT_EXAMPLES = all
test-all: test test-torch
	for part in $(parts); do \
	  $(VENV)/bin/python -m pytest $(PLUGINS) -q -m slow $(SPREAD) $(PYTEST_ARGS) $$part; \
	  case $$? in 0|5) ;; *) exit 1 ;; esac; \
	done

test-torch: torch-env
	$(TORCH_VENV)/bin/python -m pytest $(PLUGINS) -q -m "not slow" $(SPREAD) $(PYTEST_ARGS) $(torch_tests)
	$(TORCH_VENV)/bin/python -m pytest $(PLUGINS) -q -k "torch.md or jax.md or replace_layers" tests/test_docs.py

lint: test-env
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check --quiet .
	$(VENV)/bin/mypy src/tilewright

core-env:
	@scripts/env.sh $(VENV) core

test-env:
	@scripts/env.sh $(VENV) test

torch-env:
	@scripts/env.sh $(TORCH_VENV) torch

clean:
	rm -rf .venv-make build dist .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find src tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
