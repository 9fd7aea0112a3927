#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# kernel_costs.sh TABLES: tests how kernel_costs reads the report of the compiler, on a fake report.
set -euo pipefail
tables=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "kernel_costs.sh: $1"; exit 1; }
printed() { grep -qxF -- "$1" "$folder/out" || fail "expected '$1' in: $(cat "$folder/out")"; }

# A file with code in sections of known sizes, as a cubin has: 3000 bytes, 5, 262145, 1, 9.
detail=N8plimsoll4v0_26detail
sort_body=_Z${detail}19batched_warp_kernelINS1_9sort_bodyIiEEEEvT_lNS1_12scratch_planE
sort_bodies=_Z${detail}19batched_warp_kernelINS1_9sort_bodyIlEEEEvT_lNS1_12scratch_planE
large_body=_Z${detail}20batched_block_kernelILi256ENS1_10large_bodyEEEvT0_lNS1_12scratch_planE
phases=_Z${detail}13phased_kernelILi128ENS1_11phased_bodyEEEvT0_iiNS1_12scratch_planE
own_kernel=_Z${detail}10own_kernelIiEEvT_
{
  for kernel in "$sort_body 3000" "$sort_bodies 5" "$large_body 262145" "$phases 1" "$own_kernel 9"; do
    echo ".section .text.${kernel% *},\"ax\",@progbits"
    echo ".zero ${kernel#* }"
  done
} | "${CC:-cc}" -x assembler -c - -o "$folder/object.o"

report() { # ARCH KERNEL STACK STORES LOADS REGISTERS
  echo "ptxas info    : Compiling entry function '$2' for 'sm_$1'"
  echo "ptxas info    : Function properties for $2"
  echo "    $3 bytes stack frame, $4 bytes spill stores, $5 bytes spill loads"
  echo "ptxas info    : Used $6 registers, used 1 barriers"
}
for arch in 80 90 120; do
  {
    report $arch "$sort_body" 0 0 0 32
    report $arch "$sort_bodies" 0 0 0 48
    report $arch "$phases" 0 0 0 16
    report $arch "$large_body" $((arch == 80 ? 16 : 0)) 0 0 40
  } >"$folder/all_headers.sm_$arch.log"
  report $arch "$own_kernel" 24 $((arch == 120 ? 8 : 0)) $((arch == 120 ? 12 : 0)) 64 >"$folder/all_planners.sm_$arch.log"
  cp "$folder/object.o" "$folder/all_headers.sm_$arch.cubin"
  cp "$folder/object.o" "$folder/all_planners.sm_$arch.cubin"
done

CUDACXX=true "$tables/kernel_costs" "$folder" >"$folder/out"
printed '| `sort_body` | 1 to 4 warps | 2 | 48 | 0, 0, 0 | 0, 0, 0 | 3 |'
printed '| `large_body` | 256 threads | 1 | 40 | 16, 0, 0 | 0, 0, 0 | 257 (over: 256) |'
printed '| `phased_body` | 128 threads, phases | 1 | 16 | 0, 0, 0 | 0, 0, 0 | 1 |'
printed '| `own_kernel` | - | 1 | 64 | 24, 24, 24 | 0, 0, 20 (over: 0) | 1 |'

# A body without a row, and a row without a body.
"$tables/kernel_costs" --rows "$tables/device_costs/kernels.md" || fail 'rows differ'
grep -v '^| `plan_line`' "$tables/device_costs/kernels.md" >"$folder/rows"
! "$tables/kernel_costs" --rows "$folder/rows" >"$folder/diff" 2>&1 || fail 'a missing row is taken'
grep -qx -- '-plan_line' "$folder/diff" || fail "$(cat "$folder/diff")"
{ cat "$tables/device_costs/kernels.md"; echo '| `no_body` | 1 to 4 warps | 1 |'; } >"$folder/rows"
! "$tables/kernel_costs" --rows "$folder/rows" >"$folder/diff" 2>&1 || fail 'a row too many is taken'
