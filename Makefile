# SPDX-License-Identifier: BSD-2-Clause
# The front door. Thin: meson and ninja do the work, in build/.
PREFIX ?= /usr/local
DESTDIR ?=
MESON ?= meson
SETUP_FLAGS = $(if $(filter true,$(CI)),-Dwerror=true) \
	$(if $(wildcard build-fio/config-host.h),-Dfio_source=$(CURDIR)/build-fio)
SOURCES = $(shell git ls-files -co --exclude-standard '*.c' '*.h' '*.cc' '*.hpp' 2>/dev/null || \
	find src tests bench movers include examples -name '*.[ch]' -o -name '*.cc' -o -name '*.hpp')

.DEFAULT_GOAL := help
.PHONY: help build demo test check weekly bench soak install format lint fuzz deb clean \
	setup-build setup-test setup-demo setup-fuzz setup-deb

help: ## lists the targets
	@echo "Sidewire: RDMA on any machine. Targets:"
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | \
		expand -t 20

setup-build setup-test setup-demo setup-fuzz setup-deb: setup-%:
	@scripts/setup $*
	@$(if $(filter test,$*),scripts/fio-source build-fio || \
		echo "the engine of fio will not be built")

build/build.ninja: $(wildcard build-fio/config-host.h)
	@$(MESON) setup $(if $(wildcard build/build.ninja),--reconfigure) build $(SETUP_FLAGS)

build: setup-build ## compiles everything into build/
	@$(MAKE) --no-print-directory build/build.ninja
	@ninja -C build

# Builds what it shows, and nothing else: a newcomer does not wait for the tests.
demo: setup-demo ## runs unmodified RDMA programs beside TCP; draws build/demo/sweep.svg
	@$(MAKE) --no-print-directory build/build.ninja
	@echo "building what is shown; 'make build' builds the rest"
	@ninja -C build demo
	@bench/demo

bench: setup-test ## measures against UCX in the same run; results in build/bench
	@scripts/setup bench || echo "the rows beside what is missing will be skipped"
	@$(MAKE) --no-print-directory build
	@bench/run

test: setup-test ## builds the release, and tests whether it works here
	@scripts/test --only release $(if $(THEN),--then $(THEN))

check: setup-test ## tests with a kernel as the peer, under ASan + UBSan and TSan, builds by clang
	@scripts/setup kernel || echo "the tests against the kernel will be skipped"
	@scripts/librpma build-librpma || echo "the tests of librpma will be skipped"
	@scripts/mpich-tests build-mpich-tests || echo "the tests of MPICH will be skipped"
	@scripts/test --only kernel,asan,tsan,clang

weekly: setup-test ## more seeds, for longer; torch of the next Debian, as root: 150 minutes
	@scripts/setup weekly || true
	@scripts/test --only weekly,weekly-asan,weekly-tsan; code=$$?; scripts/weekly && exit $$code

install: setup-build ## installs into PREFIX (/usr/local) below DESTDIR
	@$(MAKE) --no-print-directory build/build.ninja
	@$(MESON) configure build -Dprefix=$(abspath $(PREFIX))
	@ninja -C build build.ninja
	@ninja -C build $$(scripts/installed build)
	@DESTDIR=$(DESTDIR) $(MESON) install -C build --no-rebuild
	@[ -n "$(DESTDIR)" ] || [ "$$(id -u)" != 0 ] || ldconfig # programs find the libraries

format: ## lays out C with clang-format and Python with black
	@clang-format -i $(SOURCES)
	@tests/style/black . --write

lint: setup-test ## runs the inspectors: layers, machines, names, what is unused, layout
	@$(MAKE) --no-print-directory build/build.ninja
	@$(MESON) test -C build --suite style --print-errorlogs

fuzz: setup-fuzz ## runs the fuzz targets for a minute each, the forger and hostile programs
	@scripts/fuzz

soak: setup-test ## an hour of hosts that are killed and stopped (SOAK="--minutes 5": less)
	@$(MAKE) --no-print-directory build
	@python3 tests/soak/soak.py build/src/cli/sidewire build/tests/soak/connects $(SOAK)

deb: setup-deb ## builds the Debian packages into build-deb/
	@scripts/deb

clean: ## removes what was built
	@rm -rf build build-*
