#!/bin/sh
# SPDX-License-Identifier: MIT
# Collects what run.sh needs in one folder, for a machine that has a GPU but no compiler: the check programs and the shared
# libraries they load, except those of the system's C library, CUDA and NCCL. There: FOLDER/run.sh FOLDER
# usage: bundle.sh BUILD_DIR FOLDER
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$1 folder=$2
mkdir -p "$folder/bin" "$folder/lib"
for program in kernel_check nccl_check rules_check unit_cuda_kernels; do
  cp "$build/bin/$program" "$folder/bin/"
  strip "$folder/bin/$program"
  ldd "$build/bin/$program" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }'
done | sort -u | grep -vE '/(libc|libm|libdl|librt|libpthread|ld-linux[^/]*|libcuda|libcudart|libnccl)\.so' |
  while read -r library; do cp -L "$library" "$folder/lib/"; done
cp "$here/run.sh" "$here/pair.sh" "$folder/"
size=$(du -sm "$folder" | cut -f 1)
echo "$folder: $size MiB"
[ "$size" -lt 64 ] || { echo "bundle.sh: larger than 64 MiB" >&2; exit 1; }
