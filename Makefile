# Thin front of the CMake build, for a machine that has nothing yet.
#
#   make          build into build/release/ (the `stator` command is build/release/stator)
#   make test     install what is missing (Debian, as root), build, run the tests
#   make train    the same, then train the char-level Llama on two ranks
#   make install  to PREFIX, /usr/local by default; DESTDIR is understood
#   make full     the long tests; make bench: the measurements
#   make asan ubsan tsan   the tests under a sanitizer
#   make fuzz     every fuzzer for a minute, and the coverage reached
#   make check    what a change must pass: format, gcc and clang, tests, lints

BUILD := build/release
WERROR ?= OFF
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PREFIX ?= /usr/local

.PHONY: all build packages test train install full bench asan ubsan tsan fuzz check clean

all: build

build:
	cmake --preset release -DSTATOR_WERROR=$(WERROR) -DCMAKE_INSTALL_PREFIX=$(PREFIX)
	cmake --build --preset release --parallel $(JOBS)

packages:
	sh scripts/packages.sh build test

test: packages
	$(MAKE) build
	ctest --preset release

train: packages
	$(MAKE) build
	STATOR=$(BUILD)/stator examples/llama/train_kjv.sh

install: build
	cmake --install $(BUILD)

full bench: build
	ctest --preset $@

asan ubsan tsan:
	cmake --preset $@
	cmake --build --preset $@ --parallel $(JOBS)
	ctest --preset $@

fuzz:
	sh scripts/fuzz.sh

check:
	cmake --workflow --preset check
	cmake --preset clang
	cmake --build --preset clang --parallel $(JOBS)

clean:
	rm -rf build/release
