#!/bin/sh
# clang++ from the wheel ziglang, with the headers and libraries of this folder (@VERSION@).
#
# Device code is compiled to assembly first. The assembler's listing becomes a section of the code object: no wheel has a
# disassembler for AMD GPUs, and with the listing none is needed.
root=${0%/*}/..
zig=$root/bin/zig
device='' other='' out='' gpu='' before=''
for word in "$@"; do
    [ "$before" = -o ] && out=$word
    case $word in
        --cuda-device-only) device=1 ;;
        --offload-arch=*) gpu=${word#*=} ;;
        -fsyntax-only | -emit-llvm | -E | -S | '-###') other=1 ;;
    esac
    before=$word
done
set -- --driver-mode=g++ --target=@TRIPLE@ -B"$root/bin" --sysroot="$root/sysroot" -stdlib=libc++ -fuse-ld=lld \
    -Qunused-arguments -nostdlib "$@" -L"$root/sysroot/usr/lib" -Wl,--as-needed -Wl,--exclude-libs,ALL \
    -lc++ -lm -lpthread -ldl -lc -lld -lc_nonshared -lcompiler_rt
if [ -z "$device" ] || [ -n "$other" ] || [ -z "$out" ]; then
    exec "$zig" clang "$@"
fi
assemble() { "$zig" clang -cc1as -triple amdgcn-amd-amdhsa -target-cpu "$gpu" -mrelocation-model pic "$@"; }
"$zig" clang "$@" -S -o "$out.s" &&
    assemble -filetype asm -show-encoding -o "$out.listing" "$out.s" &&
    printf '\n\t.section .tilewright.listing,"",@progbits\n\t.incbin "%s"\n' "$out.listing" >>"$out.s" &&
    assemble -filetype obj -o "$out.o" "$out.s" &&
    "$zig" ld.lld -m elf64_amdgpu --no-undefined -shared --compress-sections=.tilewright.listing=zlib \
        -o "$out" "$out.o"
code=$?
rm -f "$out.s" "$out.listing" "$out.o"
exit $code
