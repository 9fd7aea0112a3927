// SPDX-License-Identifier: Apache-2.0
// Device memory: one arena whose addresses are never used twice, with a shadow byte per byte.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "emulator.hpp"

namespace emu {

u8* arena = nullptr;
u8* shadow = nullptr;
std::map<u64, device_allocation>& allocations = *new std::map<u64, device_allocation>;

namespace {

u64 used = 0;
constexpr u64 page = 4096;

u8* reserve(u64 bytes) {
  void* const p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    die("cannot reserve %llu bytes of addresses", static_cast<unsigned long long>(bytes));
  return static_cast<u8*>(p);
}

/// Last contents of freed memory of each size.
auto& freed = *new std::map<u64, std::vector<u8>>;
constexpr u64 most_kept = 1 << 20;

/// Whoever reads fresh memory gets values that change with the settings.
void fill_fresh(u8* p, u64 bytes) {
  switch (settings.fresh) {
    case emulator_settings::fresh_memory::pattern:
      std::memset(p, static_cast<u8>(0xa5 + 0x3b * settings.seed), bytes);
      break;
    case emulator_settings::fresh_memory::zero:
      std::memset(p, 0, bytes);
      break;
    case emulator_settings::fresh_memory::random: {
      static random_numbers source(settings.seed + 99);
      for (u64 i = 0; i + 8 <= bytes; i += 8) {
        u64 const r = source.next();
        std::memcpy(p + i, &r, 8);
      }
      break;
    }
    case emulator_settings::fresh_memory::stale: {
      // As a pool that hands out the memory of an earlier call
      auto const at = freed.find((bytes + 255) / 256);
      std::memset(p, 0, bytes);
      if (at != freed.end())
        std::memcpy(p, at->second.data(), std::min<u64>(bytes, at->second.size()));
      break;
    }
  }
}

}  // namespace

void init_memory() {
  if (arena != nullptr)
    return;
  arena = reserve(arena_size);
  shadow = reserve(arena_size);
}

void* allocate(u64 bytes, device_allocation::kind_code kind) {
  if (bytes == 0)
    bytes = 1;
  // 256 bytes of alignment and at least as many between two allocations, which are never valid.
  u64 const at = used;
  u64 const size = (bytes + 255) / 256 * 256 + 256;
  if (used + size > arena_size || bytes > (u64{80} << 30))
    return nullptr;
  used += size;
  u8* const p = arena + at;
  std::memset(shadow + at,
              kind == device_allocation::device  ? 1
              : kind == device_allocation::graph ? 0
                                                 : 3,
              bytes);
  if (kind == device_allocation::variable) {
    std::memset(p, 0, bytes);
  } else {
    fill_fresh(p, bytes);
  }
  static u64 number = 0;
  allocations[reinterpret_cast<u64>(p)] = {bytes, kind,
                                           kind == device_allocation::variable ? 0 : ++number};
  return p;
}

bool release(void* pointer) {
  auto const at = allocations.find(reinterpret_cast<u64>(pointer));
  if (at == allocations.end())
    return false;
  u64 const offset = at->first - reinterpret_cast<u64>(arena);
  if (settings.fresh == emulator_settings::fresh_memory::stale && at->second.size <= most_kept) {
    auto const* const bytes = static_cast<u8 const*>(pointer);
    freed[(at->second.size + 255) / 256].assign(bytes, bytes + at->second.size);
  }
  std::memset(shadow + offset, 0, at->second.size);
  u64 const first = (offset + page - 1) / page * page,
            last = (offset + at->second.size) / page * page;
  if (last > first) {
    madvise(arena + first, last - first, MADV_DONTNEED);
    madvise(shadow + first, last - first, MADV_DONTNEED);
  }
  allocations.erase(at);
  return true;
}

void set_valid(void* pointer, bool valid) {
  u64 const bytes = allocations.at(reinterpret_cast<u64>(pointer)).size;
  u64 const offset = reinterpret_cast<u64>(pointer) - reinterpret_cast<u64>(arena);
  std::memset(shadow + offset, valid ? 1 : 0, bytes);
  if (valid)
    fill_fresh(static_cast<u8*>(pointer), bytes);
}

std::pair<u64 const, device_allocation> const* find_allocation(void const* pointer) {
  u64 const p = reinterpret_cast<u64>(pointer);
  auto at = allocations.upper_bound(p);
  if (at == allocations.begin())
    return nullptr;
  --at;
  return p < at->first + at->second.size ? &*at : nullptr;
}

namespace {

void check_range(void const* p, u64 bytes, char const* call) {
  auto const* const found = find_allocation(p);
  if (found == nullptr || reinterpret_cast<u64>(p) + bytes > found->first + found->second.size) {
    die("%s: bytes [%p, +%llu) are not one allocation of device memory", call, p,
        static_cast<unsigned long long>(bytes));
  }
}

}  // namespace

void host_wrote(void* p, u64 bytes, char const* call) {
  if (bytes == 0 || !in_arena(p))
    return;
  check_range(p, bytes, call);
  std::memset(shadow + (static_cast<u8*>(p) - arena), 3, bytes);
}

void host_reads(void const* p, u64 bytes, char const* call) {
  if (bytes == 0 || !in_arena(p))
    return;
  check_range(p, bytes, call);
  if (settings.init) {
    // Padding of structs has fewer than eight bytes.
    u8 const* const s = shadow + (static_cast<u8 const*>(p) - arena);
    u64 run = 0;
    for (u64 i = 0; i < bytes; ++i) {
      run = s[i] == 3 ? 0 : run + 1;
      if (run == 8) {
        report_copy(call, p, bytes, i - 7);
        break;
      }
    }
  }
}

}  // namespace emu
