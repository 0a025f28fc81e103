#!/bin/sh
# SPDX-License-Identifier: MIT
# Collects what run.sh needs in one folder, for a machine that has a GPU but no compiler: programs, the plugin, and the shared
# libraries they load, except those of the system's C library, CUDA and NCCL. There: FOLDER/run.sh FOLDER
# train_cuda is left out: OpenBLAS is larger than all else.
# usage: bundle.sh BUILD_DIR FOLDER
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$1 folder=$2
most=40 # MiB
rm -rf "$folder/bin" "$folder/lib"
mkdir -p "$folder/bin" "$folder/lib"

programs="kernel_check nccl_check product_check rules_check unit_cuda_kernels"
if [ -x "$build/bin/flat_bf16" ]; then
  programs="$programs flat_bf16"
  cp "$build/runtime/libddprun_cuda.so" "$folder/lib/"
fi
for program in $programs; do
  cp "$build/bin/$program" "$folder/bin/"
  ldd "$build/bin/$program" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }'
done | sort -u | grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*|libcuda|libcudart|libcublas|libnccl)\.so' |
  while read -r library; do cp -L "$library" "$folder/lib/"; done
strip --strip-unneeded "$folder"/bin/* "$folder"/lib/*
for file in run.sh pair.sh tool.sh; do cp "$here/$file" "$folder/"; done

# Every library is there that is neither the C library's nor CUDA's.
for program in $programs; do
  missing=$(LD_LIBRARY_PATH="$folder/lib" ldd "$folder/bin/$program" | awk '/not found/ { print $1 }' | grep -vE '^lib(cudart|cublas)' || true)
  [ -z "$missing" ] || { echo "bundle.sh: $program lacks $missing" >&2; exit 1; }
done
size=$(du -sm "$folder" | cut -f 1)
echo "$folder: $size MiB: $programs"
[ "$size" -le $most ] || { echo "bundle.sh: larger than $most MiB" >&2; exit 1; }
