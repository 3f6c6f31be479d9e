# Builds the daemon, the client library and dsaioctl in build/.  They run from there without an
# installation.  `make help` lists the targets.

# ---- variables for the command line ----

BUILD    = build
CFLAGS   = -O2 -g
SOAK_SEC = 600
SANITIZE =		# address, undefined or thread; the targets asan, ubsan, tsan set it
SYSTEMD  = yes		# no, with a BUILD of its own: dsaiod is built without libsystemd, as for a container
V        =		# 1 shows whole commands
GIT      = git -c safe.directory='*'
# Shown by --version and dsaioctl status, so that builds of one version differ.  A tarball has it as a file.
BUILD_ID = $(if $(wildcard .git),$(shell $(GIT) describe --always --dirty --abbrev=12 2>/dev/null),$(file <BUILD_ID))

prefix      = /usr/local
exec_prefix = $(prefix)
bindir      = $(exec_prefix)/bin
sbindir     = $(exec_prefix)/sbin
libdir      = $(exec_prefix)/lib
includedir  = $(prefix)/include
# The daemon's plug-in for RADOS.
plugindir   = $(libdir)/dsaiod
# No directory of one Python: the package serves all.  Programs find it by PYTHONPATH.
pythondir   = $(libdir)/dsaio-python
datarootdir = $(prefix)/share
mandir      = $(datarootdir)/man
docdir      = $(datarootdir)/doc/dsaiod
# The host's /etc and /var for the usual prefixes, else folders below prefix.
sysconfdir    = $(if $(filter /usr /usr/local,$(prefix)),,$(prefix))/etc
localstatedir = $(if $(filter /usr /usr/local,$(prefix)),,$(prefix))/var
# systemd finds units there for both usual prefixes.
unitdir     = $(prefix)/lib/systemd/system
sysusersdir = $(prefix)/lib/sysusers.d
tmpfilesdir = $(prefix)/lib/tmpfiles.d
bashcompdir = $(datarootdir)/bash-completion/completions
zshcompdir  = $(datarootdir)/zsh/site-functions
fishcompdir = $(datarootdir)/fish/vendor_completions.d
DESTDIR     =

ifneq ($(origin CC),command line)
CC = gcc
endif
INSTALL = install
CLANG   = clang
PYTHON  = /usr/bin/python3	# which runs the tests of the Python package
PYTHONS = $(PYTHON)		# with which the wheel is tested

# ---- sources ----

# A source file in one of these folders is part of the program; nothing else lists it.
PROTO_SRC   = $(sort $(wildcard proto/*.c proto/util/*.c))
DAEMON_SRC  = $(filter-out daemon/rados/%,$(sort $(wildcard daemon/*.c daemon/*/*.c)))
# These are compiled again for the wheel, without libsystemd, which has no archive.
SYSTEMD_SRC = $(shell grep -l '"daemon/base/systemd.h"' $(DAEMON_SRC))
RADOS_SRC   = $(sort $(wildcard daemon/rados/*.c))
LIB_SRC     = $(sort $(wildcard client/lib/*.c client/lib/*/*.c))
CTL_SRC     = $(sort $(wildcard client/ctl/*.c client/ctl/*/*.c))
HARNESS_SRC = $(sort $(wildcard tests/harness*.c)) tests/stores.c tests/fuse.c tests/mixed.c tests/victim.c
# Each file is a separate program.
UNIT_SRC    = $(sort $(wildcard tests/unit/test_*.c))
PROG_SRC    = $(sort $(wildcard tests/e2e/*.c tests/fault/*.c)) tests/demo.c tests/gpu/check.c tests/systemd/load.c
# Stand-ins for the vendor's libraries of GPUs, and a library that is slow to open.
GPU_LIBS    = $(addprefix $(BUILD)/tests/gpu/,libcuda.so libcufile.so libslow.so libdisk.so)
CUDA_SRC    = $(sort $(wildcard tests/gpu/cuda_*.c))
FUZZ_SRC    = $(sort $(wildcard tests/fuzz/fuzz_*.c))
BENCH_SRC   = $(sort $(wildcard tests/bench/*.c))
RADOS_BIN   = $(patsubst %.c,$(BUILD)/%,$(sort $(wildcard tests/rados/*.c)))

# ---- flags ----

VERSION  := $(shell sed -n 's/^.define DSAIO_VERSION "\(.*\)"/\1/p' client/lib/dsaio.h)
# 0 until 1.0: the interface may still change.
SOVERSION = 0
SONAME    = libdsaio-client.so.$(SOVERSION)

SANITIZE_FLAGS = $(if $(strip $(SANITIZE)),-fsanitize=$(strip $(SANITIZE)) \
		 -fno-sanitize-recover=all -fno-omit-frame-pointer,-D_FORTIFY_SOURCE=2)
WARNINGS = -Wall -Wextra -Wpedantic -Wshadow -Wconversion \
	   $(if $(findstring clang,$(CC)),-Wno-gnu-zero-variadic-macro-arguments)
# All code is position independent, so daemon, library and tests share objects.
# The library checks its arguments itself, and the tests pass wrong ones.
ATTRIBUTES = $(if $(filter client/ctl/% tests/demo.c tests/bench/%,$<),,-DDSAIO_NO_ATTRIBUTES)
# Lines that run are counted where the stage coverage looks at them: elsewhere that would only take time.
COUNTED = $(if $(filter daemon/% client/lib/% tests/coverage/%,$<),$(COUNT_FLAGS))
COMPILE  = $(CC) -std=gnu17 -D_GNU_SOURCE -I. -I$(BUILD) $(ATTRIBUTES) $(WITHOUT) $(CPPFLAGS) $(WARNINGS) -pthread -fPIC \
	   -fno-semantic-interposition -fstack-protector-strong $(SANITIZE_FLAGS) $(CFLAGS) $(COUNTED) -MMD -MP
LINK     = $(CC) -pthread $(CFLAGS) $(SANITIZE_FLAGS) -Wl,-z,relro,-z,now,--as-needed $(LDFLAGS)
LIB_LINK = $(LINK) -shared -Wl,-soname,$(SONAME) -Wl,--version-script=client/lib/libdsaio-client.map
LIBSYSTEMD  = $(if $(filter no,$(SYSTEMD)),,-lsystemd)
WITHOUT     = $(if $(LIBSYSTEMD),,-DDSAIO_WITHOUT_SYSTEMD)
DAEMON_LIBS = -levent_core -laio -lprotobuf-c $(LIBSYSTEMD)
LIB_LIBS    = -lprotobuf-c
CTL_LIBS    = $(LIB_LIBS) -ljson-c -levent_extra -levent_core -lncursesw -ltinfo -lm
CHECK_LIBS  = -lcheck -lsubunit -lrt -lm

say = $(if $(strip $(V)),,@printf '  %-6s %s\n' $1 $2;)
obj = $(patsubst %.c,$(BUILD)/%.o,$1)

PROTO_OBJ  = $(call obj,$(PROTO_SRC)) $(BUILD)/proto/dsaio.pb-c.o
DAEMON_OBJ = $(call obj,$(DAEMON_SRC))
RADOS_OBJ  = $(call obj,$(RADOS_SRC))
BARE_OBJ   = $(patsubst %.c,$(BUILD)/bare/%.o,$(SYSTEMD_SRC))
LIB_OBJ    = $(call obj,$(LIB_SRC))
CTL_OBJ    = $(call obj,$(CTL_SRC))
UNIT_BIN   = $(patsubst %.c,$(BUILD)/%,$(UNIT_SRC))
PROG_BIN   = $(patsubst %.c,$(BUILD)/%,$(PROG_SRC))
BENCH_OBJ  = $(call obj,$(BENCH_SRC))
FUZZ_BIN   = $(patsubst %.c,$(BUILD)/%,$(FUZZ_SRC))
# The archives that tests link: all objects except the main() of each program.
ARCHIVES   = $(BUILD)/daemon.a $(BUILD)/ctl.a $(BUILD)/libdsaio-client.a

# ---- help, packages ----

.PHONY: help
help: ## print this
	@echo "dsaiod $(VERSION): make TARGET [BUILD=dir] [prefix=dir] [CC=clang] [V=1]"
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## */\1\t/p' Makefile | while IFS="$$(printf '\t')" \
		read -r target what; do printf '  %-15s %s\n' "$$target" "$$what"; done

PACKAGES    = gcc libc6-dev pkg-config libaio-dev libevent-dev libprotobuf-c-dev \
	      protobuf-c-compiler check libjson-c-dev libnvme-dev libncurses-dev $(if $(LIBSYSTEMD),libsystemd-dev)
# The tests make file systems, look at system calls and compare with fio.
PACKAGES_CHECK = e2fsprogs xfsprogs strace fio python3 python3-matplotlib python3-prometheus-client procps tmux
PACKAGES_CI = clang clang-tidy clang-format-14 libclang-rt-14-dev g++ cppcheck valgrind spin gcovr \
	      man-db mandoc systemd-container btrfs-progs abigail-tools mypy \
	      zsh fish twine lintian $(PACKAGES_DEB)
PACKAGES_DEB = git xz-utils dpkg-dev debhelper dh-python fakeroot

# Installs missing packages of $1.  Without root or sudo it prints the apt command and fails, unless
# $2 says what happens without them.
install_packages = \
	if ! command -v dpkg-query >/dev/null; then \
		echo "not a Debian system: needed are, by Debian's names: $1"; exit 0; \
	fi; \
	missing=; for p in $1; do \
		dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || \
			missing="$$missing $$p"; \
	done; \
	[ -n "$$missing" ] || exit 0; \
	line="apt-get install -y --no-install-recommends$$missing"; \
	if [ "$$(id -u)" = 0 ]; then sudo=; \
	elif sudo -n true 2>/dev/null; then sudo=sudo; \
	else echo "packages are missing; run as root:  apt-get update && $$line"; \
		$(if $2,echo "without them $2"; exit 0,exit 1); fi; \
	echo "installing$$missing"; \
	apt="$$sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0"; log=$$(mktemp); \
	{ $$apt install -y --no-install-recommends $$missing || \
	  { $$apt update && $$apt install -y --no-install-recommends $$missing; }; } \
		>$$log 2>&1 || { cat $$log; rm -f $$log; echo "this failed: $$line"; exit 1; }; rm -f $$log

# Debian's torch is of the CPU alone, and small.  Tests that need it are skipped where it is missing.
PACKAGES_PYTHON = python3 python3-pytest python3-numpy python3-torch

# DeepSpeed compiles its own CPU ops.  The tests were written with these versions of PyPI's packages.
PACKAGES_DEEPSPEED = python3 python3-venv python3-dev g++ libaio-dev
LOADERS_PACKAGES = torch==2.15.0 numpy==2.4.6 safetensors==0.8.0 transformers==5.24.0 accelerate==1.15.0 pytest==9.2.0
DEEPSPEED_PACKAGES = torch==2.15.0 deepspeed==0.19.8 numpy==2.4.6 safetensors==0.8.0 pytest==9.2.0 ninja==1.13.2

# Stores on Ceph: what the plug-in is built with, and a cluster for its tests.
PACKAGES_RADOS = librados-dev ceph-mon ceph-mgr ceph-osd ceph-common

.PHONY: deps deps-check deps-ci deps-python deps-deepspeed deps-rados
deps: ## install the packages for build and demo (Debian)
	@$(call install_packages,$(PACKAGES))
deps-check: deps ## install the packages for the tests, too
	@$(call install_packages,$(PACKAGES_CHECK),some tests are skipped)
deps-python: deps ## install the packages for the tests of the Python package, too
	@$(call install_packages,$(PACKAGES_PYTHON))
deps-deepspeed: deps ## install the packages for the tests with DeepSpeed, too
	@($(call install_packages,$(PACKAGES_DEEPSPEED),check-deepspeed is skipped)) || true
deps-rados: deps ## install the packages for stores on Ceph RADOS and their tests, too
	@($(call install_packages,$(PACKAGES_RADOS),make check-rados is skipped)) || true
deps-ci: deps-check deps-rados ## install all other packages: sanitizers, fuzzing, model
	@$(call install_packages,$(PACKAGES_CI))

# ---- build ----

.PHONY: all tests
HAS_RADOS := $(shell $(CC) -E -x c -include rados/librados.h /dev/null >/dev/null 2>&1 && echo yes)
ALL = $(addprefix $(BUILD)/,dsaiod dsaioctl libdsaio-client.so libdsaio-client.pc python/dsaio \
	$(if $(HAS_RADOS),dsaiod-rados.so))
ifneq ($(HAS_RADOS),yes)
all: without-rados
.PHONY: without-rados
without-rados:
	@echo "  the plug-in for Ceph is left out: it needs librados-dev"
endif
all: $(ALL) ## build the daemon, the library and dsaioctl
tests: all $(UNIT_BIN) $(PROG_BIN) $(GPU_LIBS) $(BUILD)/bench ## build the tests, too

$(BUILD)/dsaiod: $(DAEMON_OBJ) $(PROTO_OBJ)
	$(call say,LINK,$@)$(LINK) -Wl,--export-dynamic -o $@ $^ $(DAEMON_LIBS)

# It calls functions of the daemon that loads it.
$(BUILD)/dsaiod-rados.so: $(RADOS_OBJ)
	$(call say,LINK,$@)$(LINK) -shared -o $@ $^ -lrados

$(BUILD)/dsaioctl: $(CTL_OBJ) $(BUILD)/libdsaio-client.a
	$(call say,LINK,$@)$(LINK) -o $@ $^ $(CTL_LIBS)

$(BUILD)/libdsaio-client.so: $(BUILD)/$(SONAME)
	@ln -sf $(SONAME) $@
$(BUILD)/$(SONAME): $(LIB_OBJ) $(PROTO_OBJ) client/lib/libdsaio-client.map
	$(call say,LINK,$@)$(LIB_LINK) -o $@ $(filter %.o,$^) $(LIB_LIBS)

$(BUILD)/daemon.a: $(filter-out %/main.o,$(DAEMON_OBJ))
$(BUILD)/ctl.a: $(filter-out %/main.o,$(CTL_OBJ))
$(BUILD)/libdsaio-client.a: $(LIB_OBJ) $(PROTO_OBJ)
$(BUILD)/harness.a: $(call obj,$(HARNESS_SRC)) $(PROTO_OBJ)
$(ARCHIVES) $(BUILD)/harness.a:
	$(call say,AR,$@)rm -f $@ && ar qcs $@ $^

$(BUILD)/libdsaio-client.pc: Makefile client/lib/dsaio.h | $(BUILD)/proto
	@printf '%s\n' 'Name: libdsaio-client' 'Description: tensors to and from NVMe through dsaiod' \
		'Version: $(VERSION)' 'Cflags: -I$(CURDIR)/client/lib' \
		'Libs: -L$(abspath $(BUILD)) -ldsaio-client -Wl,-rpath,$(abspath $(BUILD))' >$@

# PYTHONPATH=build/python: the package, with the library beside it.
PYTHON_SRC = $(wildcard client/python/dsaio/*.py client/python/dsaio/*/*.py) client/python/dsaio/py.typed
$(BUILD)/python/dsaio: $(PYTHON_SRC) | $(BUILD)/$(SONAME)
	@rm -rf $@ && mkdir -p $(patsubst client/%,$(BUILD)/%,$(sort $(dir $(PYTHON_SRC)))) && \
		ln -s $(abspath $(BUILD)/$(SONAME)) $@/
	@$(foreach file,$(PYTHON_SRC),ln -s $(abspath $(file)) $(file:client/%=$(BUILD)/%) &&) :

GENERATED = $(addprefix $(BUILD)/proto/,dsaio.pb-c.h dirs.h version.h build.h)
$(BUILD)/%.o: %.c | $(GENERATED)
	@mkdir -p $(@D)
	$(call say,CC,$<)$(COMPILE) -c -o $@ $<

# It fills and compares the bytes of tests.  Sanitizers look at the code that moves them.
$(BUILD)/tests/harness_bytes.o: SANITIZE_FLAGS =
# Generated code is compiled without our warnings.
$(BUILD)/proto/dsaio.pb-c.o: WARNINGS =
$(BUILD)/proto/dsaio.pb-c.o: $(BUILD)/proto/dsaio.pb-c.c
	$(call say,CC,$<)$(COMPILE) -c -o $@ $<
$(BUILD)/proto/dsaio.pb-c.c $(BUILD)/proto/dsaio.pb-c.h &: proto/dsaio.proto | $(BUILD)/proto
	$(call say,PROTOC,$<)protoc-c --c_out=$(BUILD) $<
$(BUILD)/proto:
	@mkdir -p $@

# The installation directories.  When they change, the header changes and its users are compiled again.
$(BUILD)/proto/dirs.h: force | $(BUILD)/proto
	@printf '#define DSAIO_%s "%s"\n' SBINDIR '$(sbindir)' SYSCONFDIR '$(sysconfdir)' \
		LOCALSTATEDIR '$(localstatedir)' PYTHONDIR '$(pythondir)' PLUGINDIR '$(plugindir)' >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
# The build id.  Only daemon/main.c and client/ctl/main.c may include it: no other file is compiled, and no
# test is linked, because it has changed.
$(BUILD)/proto/build.h: force | $(BUILD)/proto
	@printf '#define DSAIO_BUILD "%s"\n' '$(or $(BUILD_ID),unknown)' >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
.PHONY: force
# The daemon gets the library's version without the library's header.
$(BUILD)/proto/version.h: client/lib/dsaio.h | $(BUILD)/proto
	@sed -n '/^.define DSAIO_VERSION "/p' $< >$@

# Unit tests use internal functions and link the archives.  The other tests link the library, as programs do.
$(BUILD)/tests/unit/test_bench_statistics: $(BUILD)/tests/bench/statistics.o
$(addprefix $(BUILD)/tests/,unit/test_rados_entry fuzz/fuzz_rados_entry): $(BUILD)/daemon/rados/entry.o
$(UNIT_BIN): $(BUILD)/%: $(BUILD)/%.o $(ARCHIVES)
	$(call say,LINK,$@)$(LINK) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(CTL_LIBS) $(DAEMON_LIBS) $(CHECK_LIBS)
$(PROG_BIN) $(filter-out %/names %/engine,$(RADOS_BIN)): $(BUILD)/%: $(BUILD)/%.o $(BUILD)/harness.a $(BUILD)/libdsaio-client.so
	$(call say,LINK,$@)$(LINK) -o $@ $^ -Wl,-rpath,$(abspath $(BUILD)) $(LIB_LIBS) -lm
# They have an inside view of the plug-in.
$(BUILD)/tests/rados/names: $(call obj,tests/rados/names.c $(patsubst %,daemon/rados/%.c,entry index names sweep))
$(BUILD)/tests/rados/engine: $(call obj,tests/rados/engine.c) $(RADOS_OBJ)
$(BUILD)/tests/rados/names $(BUILD)/tests/rados/engine: $(BUILD)/daemon.a $(PROTO_OBJ)
	$(call say,LINK,$@)$(LINK) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(DAEMON_LIBS) -lrados
$(BUILD)/tests/gpu/libcuda.so: $(call obj,$(CUDA_SRC))
$(GPU_LIBS): $(BUILD)/%.so: $(BUILD)/%.o
	$(call say,LINK,$@)$(LINK) -shared -Wl,-soname,$(@F)$(if $(filter %/libcuda.so,$@),.1,.0) -o $@ $^
# The sides of the bench need each other and a part of the library.
SIDES_OBJ = $(call obj,$(patsubst %,tests/bench/%.c,crew deepnvme files histogram \
	    process report side side_deepnvme side_fio side_local side_ours side_uring \
	    small_rows statistics tune))
$(patsubst %,$(BUILD)/tests/unit/test_bench_%,deepnvme small): $(SIDES_OBJ)
$(BUILD)/bench: $(BENCH_OBJ) $(PROTO_OBJ) $(BUILD)/libdsaio-client.so
	$(call say,LINK,$@)$(LINK) -o $@ $^ -Wl,-rpath,$(abspath $(BUILD)) $(CTL_LIBS) -laio
.SECONDARY:

-include $(patsubst %.o,%.d,$(PROTO_OBJ) $(DAEMON_OBJ) $(RADOS_OBJ) $(BARE_OBJ) $(LIB_OBJ) $(CTL_OBJ) $(BENCH_OBJ) \
	   $(call obj,$(HARNESS_SRC) $(CUDA_SRC))) \
	 $(addsuffix .d,$(UNIT_BIN) $(PROG_BIN) $(RADOS_BIN) $(FUZZ_BIN) $(basename $(GPU_LIBS)))

# ---- wheel ----

# The wheel's programs and library contain the other projects' libraries, from Debian's archives.
WHEEL       = $(BUILD)/wheel
WHEEL_FILES = $(addprefix $(WHEEL)/,dsaiod dsaioctl $(SONAME))
static      = -Wl,-Bstatic $(filter-out -lm -lsystemd,$1) -Wl,-Bdynamic $(filter -lm,$1)
.PHONY: wheel
wheel: ## build the self-contained wheel: build/dsaio-*.whl [SOURCE_DATE_EPOCH=seconds]
	@$(call install_packages,$(PACKAGES) python3)
	@$(MAKE) --no-print-directory $(WHEEL_FILES)
	@rm -f $(BUILD)/dsaio-*.whl
	@$(strip $(PYTHON)) client/python/wheel/build.py $(WHEEL) $(VERSION)
$(BUILD)/bare/%.o: WITHOUT = -DDSAIO_WITHOUT_SYSTEMD
$(BUILD)/bare/%.o: %.c | $(GENERATED)
	@mkdir -p $(@D)
	$(call say,CC,$<)$(COMPILE) -c -o $@ $<
$(WHEEL)/dsaiod: $(filter-out $(call obj,$(SYSTEMD_SRC)),$(DAEMON_OBJ)) $(BARE_OBJ) $(PROTO_OBJ) \
		 $(BUILD)/client/python/wheel/arc4random.o
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(LINK) -s -o $@ $^ $(call static,$(DAEMON_LIBS))
$(WHEEL)/dsaioctl: $(CTL_OBJ) $(BUILD)/libdsaio-client.a $(BUILD)/client/python/wheel/arc4random.o
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(LINK) -s -o $@ $^ $(call static,$(CTL_LIBS))
$(WHEEL)/$(SONAME): $(LIB_OBJ) $(PROTO_OBJ) client/lib/libdsaio-client.map
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(LIB_LINK) -s -o $@ $(filter %.o,$^) $(call static,$(LIB_LIBS))

# ---- tarballs, packages ----

# archive FILE FORMAT NAME OPTIONS: the tracked files as they are, and what the build has from git.
archive = [ -e .git ] || { echo "a tarball is made from git's files: run make $@ in a clone"; exit 1; }; mkdir -p $(BUILD); \
	$(GIT) -c tar.tar.xz.command=xz archive --format=$2 -o $1 --prefix=$3/ \
		--add-virtual-file=$3/BUILD_ID:$(BUILD_ID) $4 "$$($(GIT) stash create | grep . || echo HEAD)" && echo $1
DIST  = $(BUILD)/dsaiod-$(VERSION).tar.xz
SDIST = $(BUILD)/dsaio-$(VERSION).tar.gz
.PHONY: dist sdist deb
dist: ## make a tarball of the sources: build/dsaiod-*.tar.xz
	@$(call archive,$(DIST),tar.xz,dsaiod-$(VERSION))
sdist: ## make the tarball that pip builds the wheel from: build/dsaio-*.tar.gz
	@mkdir -p $(BUILD) && rm -f $(BUILD)/dsaio-*.tar.gz
	@$(strip $(PYTHON)) client/python/wheel/build.py --pkg-info $(VERSION) >$(BUILD)/PKG-INFO
	@$(call archive,$(SDIST),tar.gz,dsaio-$(VERSION),--add-file=$(BUILD)/PKG-INFO)
deb: ## build Debian packages: build/deb/*.deb
	@$(call install_packages,$(filter-out check,$(PACKAGES)) librados-dev $(PACKAGES_DEB))
	@$(MAKE) --no-print-directory dist
	@grep -q "^dsaiod ($(VERSION)) " systemd/debian/changelog || \
		{ echo "systemd/debian/changelog: its newest version is not $(VERSION): add an entry"; exit 1; }
	@for p in $(filter-out gcc libc6-dev check,$(PACKAGES)) librados-dev; do grep -qx " $$p," systemd/debian/control || \
		{ echo "systemd/debian/control: Build-Depends lacks $$p"; exit 1; }; done
	@rm -rf $(BUILD)/deb && mkdir $(BUILD)/deb && tar -C $(BUILD)/deb -xf $(DIST)
	@cd $(BUILD)/deb/dsaiod-$(VERSION) && cp -r systemd/debian . && env -u MAKEFLAGS -u MAKELEVEL -u MFLAGS -u CFLAGS \
		DEB_BUILD_OPTIONS="$${DEB_BUILD_OPTIONS-parallel=$$(nproc)}" dpkg-buildpackage -b -us -uc >../log 2>&1 || \
		{ cat ../log; exit 1; }
	@ls $(BUILD)/deb/*.deb

# ---- try, test, measure ----

.PHONY: demo check soak check-python check-deepspeed check-loaders check-rados check-deb check-systemd check-install check-wheel check-report check-tune check-gpu bench \
	bench-python bench-deepspeed asan ubsan coverage tsan valgrind fuzz model ring-mutants recovery-mutants
demo: deps ## write, read and verify 400 MB of tensors through a private daemon
	@$(MAKE) --no-print-directory all $(BUILD)/tests/demo
	@BUILD=$(BUILD) tests/demo.sh

check: deps-check ## run all tests
	@$(MAKE) --no-print-directory tests
	@BUILD=$(BUILD) SANITIZE=$(strip $(SANITIZE)) tests/run.sh

soak: deps-check ## kill clients and daemons at random, and know each byte [SOAK_SEC=600 TEST_SEED=1]
	@$(MAKE) --no-print-directory tests
	@BUILD=$(BUILD) SOAK_SEC=$(SOAK_SEC) $(BUILD)/tests/fault/soak

check-python: deps-python ## run the tests of the Python package [PYTHON=/usr/bin/python3]
	@$(MAKE) --no-print-directory all $(BUILD)/bench $(GPU_LIBS)
	@BUILD=$(BUILD) PYTHONPYCACHEPREFIX=$(abspath $(BUILD))/pycache PYTHON=$(strip $(PYTHON)) tests/python/run.sh

# Another make, for what deps-rados has installed.
check-rados: deps-rados ## run the tests of stores on Ceph RADOS, on a cluster of their own [RADOS_TESTS="files faults"]
	@$(MAKE) --no-print-directory all $(RADOS_BIN)
	@BUILD=$(BUILD) SANITIZE=$(strip $(SANITIZE)) tests/rados/run.sh $(RADOS_TESTS)

# DEEPSPEED_PACKAGES chooses other versions; TORCH_EXTENSIONS_DIR is where DeepSpeed compiles its ops.
check-deepspeed: deps-deepspeed ## run them with torch and DeepSpeed of PyPI: 5 GB, once [DEEPSPEED_VENV=DIR]
	@$(MAKE) --no-print-directory all $(BUILD)/bench $(GPU_LIBS)
	@BUILD=$(BUILD) PYTHON=$(strip $(PYTHON)) DEEPSPEED_PACKAGES="$(DEEPSPEED_PACKAGES)" \
		DEEPSPEED_VENV=$(DEEPSPEED_VENV) tests/deepspeed/check.sh

# LOADERS_PACKAGES chooses other versions, and vllm beside them.
check-loaders: deps-deepspeed ## run the loaders with safetensors, transformers and accelerate of PyPI: 5 GB, once [LOADERS_VENV=DIR]
	@$(MAKE) --no-print-directory all
	@BUILD=$(BUILD) PYTHON=$(strip $(PYTHON)) LOADERS_PACKAGES="$(LOADERS_PACKAGES)" LOADERS_VENV=$(LOADERS_VENV) tests/loaders/check.sh

bench: ## measure beside fio, libaio and DeepNVMe's algorithm [BENCH_JSON=FILE]; more: build/bench --help
	@$(call install_packages,$(PACKAGES) fio)
	@$(MAKE) --no-print-directory all $(BUILD)/bench
	@BUILD=$(BUILD) BENCH_JSON=$(BENCH_JSON) $(BUILD)/bench

bench-python: deps-python ## measure the Python package beside DeepNVMe's op [BENCH_JSON=FILE DEEPSPEED_VENV=DIR]
	@$(MAKE) --no-print-directory all
	@BUILD=$(BUILD) PYTHONPYCACHEPREFIX=$(abspath $(BUILD))/pycache DEEPSPEED_VENV=$(DEEPSPEED_VENV) \
		$(strip $(PYTHON)) tests/bench/python.py $(if $(BENCH_JSON),--json $(BENCH_JSON))

bench-deepspeed: deps-python ## measure ZeRO-Infinity beside DeepSpeed's own op [BENCH_JSON=FILE DEEPSPEED_VENV=DIR]
	@$(MAKE) --no-print-directory all $(BUILD)/bench
	@BUILD=$(BUILD) DEEPSPEED_VENV=$(DEEPSPEED_VENV) PYTHONPYCACHEPREFIX=$(abspath $(BUILD))/pycache \
		$(strip $(PYTHON)) tests/bench/zero_infinity.py $(if $(BENCH_JSON),--json $(BENCH_JSON))

asan: ## run all tests with the address sanitizer
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/asan SANITIZE=address check
ubsan: ## run all tests with the undefined behaviour sanitizer
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/ubsan SANITIZE=undefined check
# The counters of lines come from the run with both sanitizers.  Without optimization a line is what its author wrote.
# A process of another user cannot write its counters, and one that will start a program does not.
COVERAGE = $(BUILD)/coverage
COVERAGE_MAKE = $(MAKE) --no-print-directory BUILD=$(COVERAGE) SANITIZE=address,undefined \
	CFLAGS="-O0 -g -fno-builtin-execvp" COUNT_FLAGS="--coverage -fprofile-update=atomic" \
	LDFLAGS="--coverage -Wl,--wrap=_exit,--version-script=tests/coverage/exit.map $(COVERAGE)/tests/coverage/exit.o"
coverage: deps-check ## the same with both sanitizers at once; compare the lines that ran with .ci/uncovered
	@$(call install_packages,gcovr)
	@[ ! -d $(COVERAGE) ] || find $(COVERAGE) -name '*.gcda' -delete
	@$(COVERAGE_MAKE) $(COVERAGE)/tests/coverage/exit.o
	@$(COVERAGE_MAKE) check-rados RADOS_TESTS="engine files names replace faults"
	@$(COVERAGE_MAKE) check
	@gcovr -r . --object-directory $(COVERAGE) -f daemon/ -f client/lib/ --json $(COVERAGE)/coverage.json \
		$(COVERAGE)/daemon $(COVERAGE)/client/lib
	@BUILD=$(COVERAGE) .ci/coverage
tsan: ## run the tests of threads with the thread sanitizer (clang)
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/tsan SANITIZE=thread CC="$(CLANG)" check
valgrind: ## run the unit tests of daemon and library under valgrind
	@$(MAKE) --no-print-directory tests
	@BUILD=$(BUILD) VALGRIND=1 tests/run.sh

check-deb: ## build Debian packages and look at them with lintian
	@$(call install_packages,lintian)
	@$(MAKE) --no-print-directory deb
	@lintian --allow-root --fail-on error,warning $(BUILD)/deb/*.changes
check-systemd: ## boot a systemd and use the installed service: packages after make deb (root)
	@$(call install_packages,$(PACKAGES) systemd-container procps)
	@$(MAKE) --no-print-directory all $(BUILD)/tests/systemd/load
	@BUILD=$(BUILD) MAKE="$(MAKE)" tests/systemd/check.sh

check-install: ## install below a temporary home, and use the README's example there
	@$(MAKE) --no-print-directory deps
	@BUILD=$(BUILD)/install tests/install/check.sh

check-wheel: wheel sdist ## install the wheel as another user, and use it [PYTHONS="python3.9 python3.13"]
	@$(call install_packages,python3-venv python3-numpy python3-pip)
	@BUILD=$(BUILD) PYTHONS="$(strip $(PYTHONS))" tests/wheel/check.sh

check-report: ## show bench reports in headless Chromium: pictures in build/report
	@$(call install_packages,$(PACKAGES) chromium poppler-utils fonts-dejavu-core)
	@$(MAKE) --no-print-directory all
	@BUILD=$(BUILD) tests/report/check.sh

check-gpu: ## ops on a real GPU, beside cuFile and pread: needs one [CUDA_LIBRARY=FILE CUFILE_LIBRARY=FILE]
	@$(MAKE) --no-print-directory deps all $(BUILD)/tests/gpu/check
	@BUILD=$(BUILD) tests/gpu/check.sh

check-tune: ## compare bench tune with a full sweep: ten minutes, needs an idle machine
	@$(MAKE) --no-print-directory deps all
	@BUILD=$(BUILD) tests/tune/check.sh

fuzz: ## fuzz the parsers of foreign bytes [FUZZ_SECONDS=30]
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/fuzz SANITIZE=fuzzer-no-link,address,undefined \
		CC="$(CLANG)" fuzz-targets
	@BUILD=$(BUILD)/fuzz tests/fuzz/run.sh
.PHONY: fuzz-targets
fuzz-targets: $(FUZZ_BIN)
$(FUZZ_BIN): $(BUILD)/%: $(BUILD)/%.o $(ARCHIVES)
	$(call say,LINK,$@)$(LINK) -fsanitize=fuzzer -o $@ $^ $(CTL_LIBS) $(DAEMON_LIBS)

model: ## check the models of the protocol with SPIN (three minutes, 2 GB)
	@tests/model/run.sh
ring-mutants: ## remove each fence of the rings in turn; a test must catch each
	@$(MAKE) --no-print-directory $(ARCHIVES)
	@BUILD=$(BUILD) tests/model/mutants.sh
recovery-mutants: ## make the mistakes of the models of recovery in a copy of the code; a test must catch each
	@CC="$(CC)" tests/model/recovery_mutants.sh

# ---- install ----

# An installed configuration belongs to the administrator and is not overwritten.
CONFS   = dsaiod.conf dsaiod-rados.conf
MAN     = $(sort $(wildcard man/*.[1-8]))
# Debian's default directories of the loader.  A library elsewhere needs an rpath in the program.
LOADER_DIRS = $(foreach dir,/lib /usr/lib /usr/local/lib,$(dir) $(dir)/$(shell $(CC) -print-multiarch))
comma       = ,
install_rpath = $(if $(filter $(LOADER_DIRS),$(libdir)),, -Wl$(comma)-rpath$(comma)$(libdir))
man_dir = $(mandir)/man$(patsubst .%,%,$(suffix $1))
# Each function of the library has a page, which is dsaio(3).
MAN_ALIASES = $(patsubst %,$(DESTDIR)$(mandir)/man3/%.3,\
		$(shell sed -n 's/^	\(dsaio_.*\);/\1/p' client/lib/libdsaio-client.map))
COMPLETIONS = bash:$(bashcompdir)/dsaioctl zsh:$(zshcompdir)/_dsaioctl fish:$(fishcompdir)/dsaioctl.fish

.PHONY: install uninstall
install: all ## install to $(DESTDIR)$(prefix)
	$(INSTALL) -d $(addprefix $(DESTDIR),$(sbindir) $(bindir) $(libdir)/pkgconfig \
		$(includedir) $(unitdir) $(sysusersdir) $(tmpfilesdir) $(sysconfdir)/dsaiod \
		$(pythondir)/dsaio $(bashcompdir) $(zshcompdir) $(fishcompdir) $(foreach page,$(MAN),$(call man_dir,$(page))))
	$(INSTALL) $(BUILD)/dsaiod $(DESTDIR)$(sbindir)/
	$(INSTALL) $(BUILD)/dsaioctl $(DESTDIR)$(bindir)/
	[ ! -e $(BUILD)/dsaiod-rados.so ] || $(INSTALL) -m 644 -D -t $(DESTDIR)$(plugindir) $(BUILD)/dsaiod-rados.so
	$(INSTALL) -m 644 $(BUILD)/$(SONAME) $(DESTDIR)$(libdir)/
	ln -sf $(SONAME) $(DESTDIR)$(libdir)/libdsaio-client.so
	$(INSTALL) -m 644 client/lib/dsaio.h $(DESTDIR)$(includedir)/
	$(foreach file,$(PYTHON_SRC),$(INSTALL) -m 644 -D $(file) $(DESTDIR)$(pythondir)/$(file:client/python/%=%) &&) :
	ln -sf $(libdir)/$(SONAME) $(DESTDIR)$(pythondir)/dsaio/
	sed -e 's|^Cflags:.*|Cflags: -I$(includedir)|' \
	    -e 's|^Libs:.*|Libs: -L$(libdir) -ldsaio-client$(install_rpath)|' $(BUILD)/libdsaio-client.pc \
		>$(DESTDIR)$(libdir)/pkgconfig/libdsaio-client.pc
	$(INSTALL) -d $(DESTDIR)$(docdir)/dsaiod.service.d
	$(INSTALL) -m 644 systemd/dsaiod.service.d/*.conf $(DESTDIR)$(docdir)/dsaiod.service.d/
	$(INSTALL) -m 644 systemd/mix.fio $(DESTDIR)$(docdir)/
	sed 's|@sbindir@|$(sbindir)|g; s|@bindir@|$(bindir)|g' systemd/dsaiod.service.in >$(DESTDIR)$(unitdir)/dsaiod.service
	sed 's|@sbindir@|$(sbindir)|g; s|@bindir@|$(bindir)|g' systemd/dsaiod@.service.in >$(DESTDIR)$(unitdir)/dsaiod@.service
	sed 's|@bindir@|$(bindir)|g' systemd/dsaiod-metrics.service.in >$(DESTDIR)$(unitdir)/dsaiod-metrics.service
	chmod 644 $(DESTDIR)$(libdir)/pkgconfig/libdsaio-client.pc $(DESTDIR)$(unitdir)/dsaiod.service \
		$(DESTDIR)$(unitdir)/dsaiod-metrics.service $(DESTDIR)$(unitdir)/dsaiod@.service
	$(INSTALL) -m 644 systemd/grafana.json $(DESTDIR)$(docdir)/
	$(INSTALL) -m 644 systemd/dsaiod.socket $(DESTDIR)$(unitdir)/
	$(INSTALL) -m 644 systemd/dsaiod.sysusers $(DESTDIR)$(sysusersdir)/dsaiod.conf
	$(INSTALL) -m 644 systemd/dsaiod.tmpfiles $(DESTDIR)$(tmpfilesdir)/dsaiod.conf
	$(foreach file,$(COMPLETIONS),$(BUILD)/dsaioctl completion $(word 1,$(subst :, ,$(file))) \
		>$(DESTDIR)$(word 2,$(subst :, ,$(file))) && chmod 644 $(DESTDIR)$(word 2,$(subst :, ,$(file))) &&) :
	$(foreach page,$(MAN),$(INSTALL) -m 644 $(page) $(DESTDIR)$(call man_dir,$(page))/ &&) :
	printf '.so man3/dsaio.3\n' | tee $(MAN_ALIASES) >/dev/null
	chmod 644 $(MAN_ALIASES)
	for file in $(CONFS); do [ -e $(DESTDIR)$(sysconfdir)/dsaiod/$$file ] || \
		$(INSTALL) -m 644 systemd/$$file $(DESTDIR)$(sysconfdir)/dsaiod/ || exit 1; done

uninstall: ## remove the installed files; it names what stays: changed configuration, saved profiles, user
	@if [ -z "$(DESTDIR)" ] && [ -d /run/systemd/system ] && \
	   [ "$$(systemctl show -P FragmentPath dsaiod.socket)" = "$(unitdir)/dsaiod.socket" ]; then \
		systemctl disable --now dsaiod.socket dsaiod.service dsaiod@rados.service dsaiod-metrics.service; fi
	rm -f $(addprefix $(DESTDIR),$(sbindir)/dsaiod $(bindir)/dsaioctl $(libdir)/$(SONAME) \
		$(libdir)/libdsaio-client.so $(libdir)/pkgconfig/libdsaio-client.pc \
		$(includedir)/dsaio.h $(unitdir)/dsaiod.service $(unitdir)/dsaiod.socket \
		$(unitdir)/dsaiod-metrics.service $(unitdir)/dsaiod@.service $(plugindir)/dsaiod-rados.so \
		$(sysusersdir)/dsaiod.conf $(tmpfilesdir)/dsaiod.conf \
		$(foreach file,$(COMPLETIONS),$(lastword $(subst :, ,$(file)))) \
		$(foreach page,$(MAN),$(call man_dir,$(page))/$(notdir $(page)))) $(MAN_ALIASES)
	rm -rf $(DESTDIR)$(pythondir)/dsaio $(DESTDIR)$(docdir)
	for file in $(CONFS); do ! cmp -s systemd/$$file $(DESTDIR)$(sysconfdir)/dsaiod/$$file || \
		rm -f $(DESTDIR)$(sysconfdir)/dsaiod/$$file; done
	@for dir in $(addprefix $(DESTDIR),$(pythondir) $(plugindir) $(sysconfdir)/dsaiod \
			$(localstatedir)/lib/dsaiod $(localstatedir)/lib/dsaiod-rados); do \
		[ ! -d $$dir ] || rmdir --ignore-fail-on-non-empty $$dir; \
		[ ! -d $$dir ] || echo "stays: $$dir: rm -r $$dir removes it"; done
	@$(if $(filter /usr /usr/local,$(DESTDIR)$(prefix)),! getent passwd dsaiod >/dev/null || \
		echo "stays: the user dsaiod: userdel dsaiod removes it",:)

# ---- keep it clean ----

C_FILES = $(shell find proto daemon client tests -name '*.[ch]' | sort)

.PHONY: tidy format abi-dump clean
tidy: ## run clang-tidy, cppcheck, clang-format, and the checks of words, man pages and ABI
	@$(MAKE) --no-print-directory all
	@BUILD=$(BUILD) .ci/tidy
format: ## format the sources
	@clang-format-14 -i $(C_FILES)
abi-dump: all ## write tests/abi/ anew; .ci/abi says when that is allowed
	@BUILD=$(BUILD) .ci/abi dump
clean: ## remove the build
	rm -rf $(BUILD)
