# softhca: two commands matter, `make demo` and `make test`.  Everything is made below this folder, but
# for what the user's cache keeps (~/.cache, or $XDG_CACHE_HOME): yosys translated to this machine's code, 235 MB
# (softhca), and the guests of `make interop` (softhca-interop).
PYTHON ?= python3
VENV := .venv
PLAIN := .venv-plain
SOURCES := pyproject.toml setup.py setup.cfg $(shell find src -name '*.py' -o -name '*.pxd' 2>/dev/null)
PIP := -m pip install -q --disable-pip-version-check --no-compile
# Modules become bytecode when they are imported, once.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test check test-compiled test-interpreted test-tools bench interop mutants campaign clean

demo: $(VENV)/.built
	$(VENV)/bin/python examples/demo.py

# The checks take one processor, and the compiled run's workers wait a fifth of their time.
test: test-tools $(VENV)/.installed
	@$(MAKE) --no-print-directory -j2 check test-compiled
	@$(MAKE) --no-print-directory test-interpreted
	@cat build/summary-compiled.txt build/summary-interpreted.txt

# Half more tests at once than there are processors (tests/suite_plan.py), those of one file in one process, long
# files first.
# Limits of time end what hangs, and grow with the slowness of the machine (tests/machine_speed.py).  A process that
# crashes is a failure that ends the run: xdist would give its file to another one, again and again, or wait for it.
PARALLEL ?= -n auto --dist loadfile --no-loadscope-reorder --max-worker-restart 0

# Compiled modules in $(VENV).  What builds them is there too, and no environment of pip's own, so that the build
# can be watched; it makes the wheel that pip unpacks.  What is made already below build/ is found again, here and
# when pip is called by hand.  What the package and its extras EXTRAS need is brought meanwhile.
$(VENV)/.built: $(SOURCES)
	@echo "softhca: an environment in $(VENV), and modules that are compiled once (a minute or more on two processors)"
	test -x $(VENV)/bin/python || $(PYTHON) release/environment.py $(VENV)
	@mkdir -p build
	$(VENV)/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' >build/requires.txt
	$(VENV)/bin/python $(PIP) -r build/requires.txt
	$(VENV)/bin/python -c 'import sys, tomllib; said = tomllib.load(open("pyproject.toml", "rb"))["project"]; print(*said["dependencies"], *(one for name in sys.argv[1:] for one in said["optional-dependencies"][name]), sep="\n")' $(EXTRAS) >build/needed.txt
	rm -rf build/wheel
	$(VENV)/bin/python $(PIP) -r build/needed.txt & needed=$$!; \
	SOFTHCA_EXT=require $(VENV)/bin/python -W 'ignore:setup.py install is deprecated' setup.py -q bdist_wheel --compression stored --dist-dir build/wheel; \
	  built=$$?; wait $$needed && exit $$built
	$(VENV)/bin/python $(PIP) --no-deps --no-index --force-reinstall build/wheel/softhca-*.whl
	touch $@

# And what tests and checks need.
$(VENV)/.installed: EXTRAS := test check
$(VENV)/.installed: $(VENV)/.built
	$(VENV)/bin/python $(PIP) 'softhca[test,check]'
	touch $@

# The same package without compiled modules in $(PLAIN), which finds everything else, pip too, in $(VENV).
$(PLAIN)/.installed: $(VENV)/.installed
	rm -rf $(PLAIN)
	$(VENV)/bin/python -m venv --without-pip $(PLAIN)
	packages() { $$1 -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }; \
	  packages $(CURDIR)/$(VENV)/bin/python >"$$(packages $(CURDIR)/$(PLAIN)/bin/python)/compiled.pth"
	SOFTHCA_EXT=skip $(PLAIN)/bin/python $(PIP) --no-build-isolation --no-deps .
	touch $@

check: $(VENV)/.installed
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache

test-compiled: $(VENV)/.installed test-tools
	@mkdir -p build
	SOFTHCA_EXPECT=compiled timeout -k 10 $$($(VENV)/bin/python tests/machine_speed.py 3600) \
	  $(VENV)/bin/python tests/run.py build/summary-compiled.txt $(PARALLEL)

test-interpreted: $(PLAIN)/.installed test-tools
	@mkdir -p build
	SOFTHCA_EXPECT=interpreted timeout -k 10 $$($(PLAIN)/bin/python tests/machine_speed.py 3600) \
	  $(PLAIN)/bin/python tests/run.py build/summary-interpreted.txt $(PARALLEL)

# What only tests use (command or path:package).  Without root, tests that need an absent one say so and are skipped.
TEST_TOOLS := tshark:tshark qemu-system-x86_64:qemu-system-x86 mke2fs:e2fsprogs ip:iproute2 iverilog:iverilog nextpnr-ice40:nextpnr-ice40 ibv_rc_pingpong:ibverbs-utils ib_write_bw:perftest ucx_perftest:ucx-utils rping:rdmacm-utils iperf:iperf zsh:zsh mpirun:openmpi-bin mpicc:libopenmpi-dev /usr/lib/python3/dist-packages/pyverbs:python3-pyverbs fi_pingpong:libfabric-bin opensm:opensm ibnetdiscover:infiniband-diags ibsim:ibsim-utils
test-tools:
	@absent=; for tool in $(TEST_TOOLS); do \
	  PATH="$$PATH:/usr/sbin:/sbin" command -v $${tool%%:*} >/dev/null || [ -e $${tool%%:*} ] || absent="$$absent $${tool##*:}"; \
	done; \
	if [ -n "$$absent" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -q >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$absent >/dev/null; \
	fi

# softhca beside others, in one run of half an hour, quiet and beside busy loops; writes docs/performance.md.  BENCH="--quick" …
# The others are Debian's iperf3, sockperf, ucx-utils, libfabric-bin, openmpi-bin; an absent one is a line that says so.
bench: $(VENV)/.installed $(PLAIN)/.installed
	$(VENV)/bin/python $(PIP) 'mpi4py>=4,<5' 'matplotlib>=3.8,<4' || echo "mpi4py or matplotlib could not be had: their lines say so"
	$(VENV)/bin/python benchmarks/performance.py --interpreted $(PLAIN)/bin/python $(BENCH)

# Every scenario with so many seeds, until a rule is broken; those with gates only where g++ compiles them.  CAMPAIGN="--dask tcp://HOST:8786" …
# First the walk over pageable memory, so many steps, and connections over a bad network, so many seeds.
CAMPAIGN_SEEDS ?= 10000
WALK_STEPS ?= 1000000
CONNECTION_SEEDS ?= 2000
campaign: $(VENV)/.installed
	@mkdir -p build
	$(VENV)/bin/python tests/driver/paging_walk.py --steps $(WALK_STEPS)
	$(VENV)/bin/python tests/management/connection_walk.py --seeds 1..$(CONNECTION_SEEDS)
	SOFTHCA_GATES=$(if $(shell command -v g++),build/gates) $(VENV)/bin/softhca campaign --seeds 1..$(CAMPAIGN_SEEDS) --summary build/campaign.json $(CAMPAIGN)

# 64 threads, all verbs, objects that any of them may close.  STRESS="--seeds 1..1000", "--seconds 3600" …
.PHONY: stress
STRESS ?= --seeds 1..20
stress: $(VENV)/.installed
	$(VENV)/bin/python tests/verbs/thread_stress.py $(STRESS)

# The matrix against Linux's SoftRoCE in guests.  INTEROP="--kernel 6.1 WORD" …; status 2: no guest can be had here.
interop: $(VENV)/.installed test-tools
	$(VENV)/bin/python tests/interop/run_interop.py $(INTEROP)

# SoftRoCE and softhca side by side between two guests.  SPEED="--kernel 6.12 --rounds 9" …
.PHONY: interop-speed
interop-speed: $(VENV)/.installed test-tools
	timeout -k 30 3600 $(VENV)/bin/python tests/interop/run_speed.py $(SPEED)

# Breaks copies of the source, one bug at a time, and shows which world finds it.  MUTANTS="--seeds 1..10 NAME" …
mutants: $(PLAIN)/.installed
	$(PLAIN)/bin/python tests/mutants/run.py --jobs $$(nproc) $(MUTANTS)

# Torn blocks by the million, judged by the reader of mailboxes; and mailboxes measured against others.
.PHONY: torn-writes bench-mailbox
torn-writes: $(VENV)/.installed
	$(VENV)/bin/python tests/mailbox/torn_campaign.py --whole --random 3000000

bench-mailbox: $(VENV)/.installed
	$(VENV)/bin/python $(PIP) 'pyzmq>=26,<28'
	$(VENV)/bin/python benchmarks/mailbox.py

# Breaks a copy of the source once for each compliance statement; the statement's checks must tell.
.PHONY: conformance-mutants
conformance-mutants: $(PLAIN)/.installed
	$(PLAIN)/bin/python tests/conformance/run_statement_mutants.py --jobs $$(nproc)

# Fuzzing guided by coverage, interpreted; then corpora and generated inputs with every index check compiled in.
# All targets share FUZZ_SECONDS (half as many in the second part) and stop at FUZZ_RUNS inputs each (0: never).
FUZZ_SECONDS ?= 1800
FUZZ_RUNS ?= 0
CHECKED := build/checked
.PHONY: fuzz
fuzz: $(VENV)/.installed $(PLAIN)/.installed
	$(PLAIN)/bin/python $(PIP) 'softhca[test,fuzz]'
	SOFTHCA_EXPECT=interpreted $(PLAIN)/bin/python tests/fuzz/fuzz_run.py --all --seconds $(FUZZ_SECONDS) --runs $(FUZZ_RUNS)
	$(VENV)/bin/python $(PIP) 'setuptools>=77,<90'
	SOFTHCA_BOUNDSCHECK=1 SOFTHCA_BUILD_DIR=$(CHECKED)/cython $(VENV)/bin/python setup.py -q build \
	  --build-base $(CHECKED)/base --build-lib $(CHECKED)/lib
	SOFTHCA_EXPECT=compiled PYTHONPATH=$(CHECKED)/lib $(VENV)/bin/python tests/fuzz/fuzz_run.py --replay
	SOFTHCA_EXPECT=compiled PYTHONPATH=$(CHECKED)/lib $(VENV)/bin/python tests/fuzz/fuzz_run.py --all --plain \
	  --seconds $$(($(FUZZ_SECONDS) / 2)) --runs $(FUZZ_RUNS)

# The compiled modules watched by gcc's AddressSanitizer and UndefinedBehaviorSanitizer, or by its ThreadSanitizer, in
# the tests that handle memory and threads.  ASAN="--only runtime", TSAN="--only stress" …
.PHONY: asan tsan
asan: CHECKS := address,undefined
tsan: CHECKS := thread
asan tsan: $(VENV)/.installed
	$(VENV)/bin/python $(PIP) 'setuptools>=77,<90'
	SOFTHCA_SANITIZE=$(CHECKS) SOFTHCA_BUILD_DIR=build/sanitized/cython $(VENV)/bin/python setup.py -q build \
	  --build-base build/$@/base --build-lib build/$@/lib
	PYTHONPATH=$(CURDIR)/build/$@/lib $(VENV)/bin/python tests/sanitizers/run_sanitized.py $@ $(if $(filter asan,$@),$(ASAN),$(TSAN))

# The library for programs in C, and the object beside it: fuzzed (libFuzzer, where clang is), and under the clients of
# tests/native and Debian's programs, with AddressSanitizer and UBSan.
.PHONY: fuzz-native asan-native
NATIVE_SECONDS ?= 600
fuzz-native: $(VENV)/.installed
	$(VENV)/bin/python tests/native/fuzz_native.py --seconds $(NATIVE_SECONDS)

asan-native: $(VENV)/.installed
	$(VENV)/bin/python tests/native/asan_matrix.py

# Live processes that are killed, stopped, limited, flooded and forged at, with an oracle on every byte, for so
# long; and (chaos-storm) as many connections made and ended as can be.  CHAOS="--mode same_host --kind kill --seed 7" …; a failure says how to repeat it.
CHAOS_SECONDS ?= 600
STORM_SECONDS ?= 600
.PHONY: chaos chaos-storm
chaos: $(VENV)/.installed
	@mkdir -p build
	$(VENV)/bin/python tests/chaos/run_chaos.py --seconds $(CHAOS_SECONDS) --json build/chaos.json $(CHAOS)

chaos-storm: $(VENV)/.installed
	@mkdir -p build
	$(VENV)/bin/python tests/chaos/run_chaos.py --storm --seconds $(STORM_SECONDS) --json build/chaos-storm.json $(CHAOS)

# The gates of the remote-key manager beside its functional model, and hostile packets for the RQ's microcode,
# so many cases each.
HARDWARE_CASES ?= 100000
.PHONY: hardware-proof
hardware-proof: $(PLAIN)/.installed
	$(PLAIN)/bin/python tests/hardware/rmb_equivalence.py --cases $(HARDWARE_CASES)
	SOFTHCA_MESSAGE_PROGRAMS=$(HARDWARE_CASES) $(PLAIN)/bin/python -m pytest -q tests/hardware/test_hardware_microcode_receive.py

# Random programs of work requests and packets for the assembled adapter, as compiled gates (g++), against the
# functional model: as many as fit into so many seconds.
PROGRAMS ?= 100000
PROGRAM_SECONDS ?= 300
.PHONY: hardware-programs
hardware-programs: $(PLAIN)/.installed
	$(PLAIN)/bin/python tests/hardware/random_messages.py --programs $(PROGRAMS) --seconds $(PROGRAM_SECONDS)

# Worlds of the same gates and a software adapter over a link that loses, repeats, delays and spoils packets.
TALKS ?= 1..200
TALK_FAULTS ?= loss=5%,duplicate=3%,reorder=3%,corrupt=2%
.PHONY: hardware-talks
hardware-talks: $(PLAIN)/.installed
	SOFTHCA_GATES=build/gates $(PLAIN)/bin/softhca campaign --scenario gates --seeds $(TALKS) --faults $(TALK_FAULTS)

# The documents as a site, in build/site; a warning fails it.
.PHONY: docs
docs: $(VENV)/.installed
	$(VENV)/bin/python $(PIP) 'softhca[docs]'
	$(VENV)/bin/python -m sphinx -q -W --keep-going -b html docs build/site
	@echo "open build/site/index.html"

# The first minute with softhca as a picture of a terminal, docs/first-minute.svg; let nothing else run meanwhile.
.PHONY: session
session: $(VENV)/.installed
	$(VENV)/bin/python benchmarks/first_minute.py --svg docs/first-minute.svg

# Wheels for every CPython that is here, and a source distribution, in dist/, each tried without a compiler.
# WHEELS="--only 3.12", "--twice" (the same bytes?), "--no-try" …
.PHONY: wheels
wheels:
	$(PYTHON) release/wheels.py $(WHEELS)

# The manual page, from the command line's own parsers; `man softhca` finds it once it is installed.
.PHONY: man
man: $(VENV)/.installed
	$(VENV)/bin/python -m softhca.cli.manual > docs/softhca.1

clean:
	rm -rf build dist $(VENV) $(PLAIN) .mypy_cache .ruff_cache .pytest_cache src/*.egg-info
