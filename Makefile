# Build, install and test the extension with PGXS:
#
#   make && make install && make installcheck
#
# PG_CONFIG picks the server to build for. `make installcheck` uses the running server that PGHOST and PGPORT name;
# with TEMP_INSTANCE=1 it starts throwaway servers of its own (not as root). EXTRA_CXXFLAGS is appended to every
# compilation.

EXTENSION  = ratelimit
MODULE_big = ratelimit
DATA       = $(sort $(wildcard ratelimit--*.sql))
OBJS       = $(patsubst %.cpp,%.o,$(sort $(wildcard src/*.cpp src/*/*.cpp)))

PG_CONFIG ?= pg_config

# Bitcode for the JIT buys nothing here, and PGXS would compile it without our language standard.
override with_llvm := no
# PGXS links with the C compiler, which leaves out the C++ runtime.
override COMPILER = $(CXX) $(CXXFLAGS)

WARNINGS     = -Wall -Wextra -Wshadow -Wconversion -Wold-style-cast -Wnon-virtual-dtor -Wmissing-declarations
# As system headers, the server's stay silent under our warnings and may use `register`.
PG_CPPFLAGS  = -isystem $(shell $(PG_CONFIG) --includedir-server) -Isrc
EXTVERSION  := $(shell sed -n "s/^default_version = '\(.*\)'$$/\1/p" ratelimit.control)
PG_CXXFLAGS  = -std=c++17 -DRATELIMIT_VERSION=\"$(EXTVERSION)\" $(WARNINGS) -fvisibility=hidden -fvisibility-inlines-hidden -MMD -MP $(EXTRA_CXXFLAGS)
SHLIB_LINK   = -Wl,--version-script=exports.map

# An empty list must be empty when PGXS looks (hence :=), so that it skips that kind of test.
REGRESS        := $(shell sed 's/\#.*//' test/schedule)
REGRESS_OPTS    = $(if $(TEMP_INSTANCE),--temp-instance=tmp_check_regress --temp-config=test/server.conf)
ISOLATION      := $(patsubst test/isolation/specs/%.spec,%,$(sort $(wildcard test/isolation/specs/*.spec)))
ISOLATION_OPTS  = --inputdir=test/isolation --load-extension=ratelimit \
	$(if $(TEMP_INSTANCE),--temp-instance=tmp_check_iso --temp-config=test/server.conf)
PROVE_TESTS    ?= $(sort $(wildcard test/t/*.pl))
TAP_TESTS      := $(if $(PROVE_TESTS),1)
EXTRA_CLEAN     = $(OBJS:.o=.d) build tmp_check_regress tmp_check_iso

PGXS := $(shell $(PG_CONFIG) --pgxs)
include $(PGXS)

$(OBJS): Makefile ratelimit.control
ratelimit.so: exports.map
-include $(OBJS:.o=.d)
