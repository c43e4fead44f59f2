# The two commands that matter: `make quickstart` does the main job, `make test` proves it in ten minutes. Both install
# what they need into .venv the first time and nothing afterwards.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -q -c constraints.txt
export OMP_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PYTHONDONTWRITEBYTECODE =
# Tests wait for processes, browsers and clocks as much as they compute: one more at a time than there are cores.
WORKERS := $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n < 3 ? n + 1 : 4)))

.PHONY: quickstart tour test test-all check nightly lint ledger wheel bench docs site extras frameworks verifiers openenv clean

quickstart: .venv/.local
	$(BIN)/clew quickstart

tour: .venv/.tour
	$(BIN)/clew tour $(TOUR)

PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder

test: .venv/.dev
	$(PYTEST) -m "not whole"

# Everything, the tests that are marked `whole` too; each assertion of a test file must have held once.
test-all: .venv/.dev
	$(PYTEST) --keep-durations

# What a change needs, in two minutes: `make check` for what differs from the last commit, or
# `make check FILES="src/clew/store/query.py"`, `make check MODULE=credit.alias`.
check: .venv/.dev
	$(BIN)/python tools/check.py $(FILES) $(MODULE)

# What takes long and is drawn at random, more often than in `test`: kills at any moment, a served process under load,
# and a sample of mutants, which is another one every day.
nightly: .venv/.dev
	$(PIP) -e '.[ray,trl]'
	CLEW_KILLS=20 CLEW_SOAK=120 CLEW_PLANS=500 CLEW_RANKS=4 CLEW_FLEETS=1 $(BIN)/python -m pytest --timeout 3600 tests/store/test_entries.py tests/store/postgres tests/harness/test_resume.py tests/harness/test_workers.py tests/harness/test_ray.py tests/harness/test_giving_up.py tests/fit/test_sharded.py tests/train/test_loop.py tests/cli/test_train_ranks.py tests/cli/test_train_fleet.py tests/serve/test_server_soak.py tests/integrations/test_trl.py
	$(BIN)/python tools/mutants.py -n 60 --seed $$(date +%j)

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

ledger: .venv/.dev
	$(BIN)/python tools/ledger.py

# The wheel, built, and used alone in an environment and a folder of its own.
wheel: .venv/.dev
	$(BIN)/python tools/wheel.py

bench: .venv/.dev
	for file in benchmarks/*.py; do case $$file in */_*) ;; *) echo "== $$file" && $(BIN)/python $$file || exit 1;; esac; done

docs: .venv/.dev
	$(BIN)/python tools/surface.py --write

# The documentation as a searchable site in build/site; a link or anchor that leads nowhere fails. Nothing is fetched.
site: .venv/.site
	$(BIN)/python tools/site.py build/site-src
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "open build/site/index.html, or: $(BIN)/python -m http.server -d build/site 8421"

.venv/.site: .venv/.local
	$(PIP) -e '.[site]'
	touch $@

# Heavy or compiled packages that tests use where they are there: TextWorld (its interpreter needs a C compiler), Inspect.
extras: .venv/.dev
	$(PIP) -e '.[textworld,gymnasium,inspect]'

# Published agent frameworks, unmodified, through the gateway and the audits; in an environment of their own.
frameworks: .venv/.frameworks
	.venv/frameworks/bin/python -m pytest -m frameworks tests/serve tests/audit

.venv/.frameworks: .venv/.dev constraints-frameworks.txt
	test -x .venv/frameworks/bin/python || $(PYTHON) -m venv .venv/frameworks
	.venv/frameworks/bin/python -m pip install -q -c constraints-frameworks.txt -e '.[frameworks]' \
		pytest pytest-timeout pytest-socket hypothesis
	touch $@

# verifiers pins packages too: an environment of its own, in which its tasksets and `vf-eval` are tested.
verifiers: .venv/.dev
	test -x .venv/verifiers/bin/python || $(PYTHON) -m venv .venv/verifiers
	.venv/verifiers/bin/python -m pip install -q verifiers==0.4.0 uv -e . pytest pytest-timeout pytest-socket hypothesis
	.venv/verifiers/bin/python -m pytest tests/integrations/test_verifiers.py

# openenv-core brings a server of many parts: an environment of its own, in which its client plays Clew's worlds.
openenv: .venv/.dev
	test -x .venv/openenv/bin/python || $(PYTHON) -m venv .venv/openenv
	.venv/openenv/bin/python -m pip install -q openenv-core==0.3.0 -e . pytest pytest-timeout pytest-socket hypothesis
	.venv/openenv/bin/python -m pytest tests/integrations/test_openenv.py

# torch is installed first and alone: what comes after finds it there and pulls in nothing of its own choosing.
.venv/.local: constraints.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) torch
	$(PIP) -e '.[local,view,stats,serve]'
	touch $@

.venv/.tour: .venv/.local
	$(PIP) -e '.[memory,probes]'
	touch $@

.venv/.dev: .venv/.local
	$(PIP) -e '.[dev]'
	touch $@

clean:
	rm -rf .venv .clew
