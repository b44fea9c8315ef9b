#!/bin/sh
# zig's linker under the name that clang runs, with the flag that selects it among LLVM's linkers.
[ "$1" = -flavor ] && shift 2
exec "${0%/*}/zig" ld.lld "$@"
