// SPDX-License-Identifier: Apache-2.0
// Finds the PTX in a fat binary, as nvcc embeds it with --no-compress, and loads its variables.
#include <cstring>

#include "emulator.hpp"

namespace emu {

namespace {

struct fatbin_wrapper {
  u32 magic;
  u32 version;
  u8 const* data;
  void const* more;
};
struct fatbin_header {
  u32 magic;
  u16 version;
  u16 bytes;
  u64 size;
};
struct fatbin_entry {
  u16 kind;  // 1: PTX, 2: cubin
  u16 version;
  u32 header_bytes;
  u64 size;
  u32 compressed_size;
  u32 options_offset;
  u16 minor;
  u16 major;
  u32 architecture;
  u32 name_offset;
  u32 name_bytes;
  u64 flags;
  u64 zero;
  u64 uncompressed_size;
};

}  // namespace

std::vector<std::string> ptx_of_fatbin(void const* image) {
  fatbin_wrapper wrapper{};
  std::memcpy(&wrapper, image, sizeof wrapper);
  if (wrapper.magic != 0x466243b1)
    die("a fat binary with the unknown magic number %x", wrapper.magic);
  fatbin_header header{};
  std::memcpy(&header, wrapper.data, sizeof header);
  if (header.magic != 0xba55ed50)
    die("a fat binary with the unknown inner magic number %x", header.magic);
  std::vector<std::string> found;
  u8 const* at = wrapper.data + header.bytes;
  u8 const* const end = at + header.size;
  while (at < end) {
    fatbin_entry entry{};
    std::memcpy(&entry, at, sizeof entry);
    if (entry.kind == 1) {
      if (entry.compressed_size != 0 || (entry.flags & 0xa000) != 0) {
        die("the PTX of a fat binary is compressed: compile with nvcc --no-compress");
      }
      std::string text(reinterpret_cast<char const*>(at) + entry.header_bytes, entry.size);
      while (!text.empty() && text.back() == '\0')
        text.pop_back();
      found.push_back(std::move(text));
    }
    at += entry.header_bytes + entry.size;
  }
  return found;
}

void load(ptx_module& m) {
  if (m.loaded)
    return;
  m.loaded = true;
  for (auto& [name, v] : m.variables) {
    if (v.space == memory_space::shared) {
      if (v.is_extern)
        continue;
      m.shared_bytes = (m.shared_bytes + v.align - 1) / v.align * v.align;
      v.address = shared_base + m.shared_bytes;
      m.shared_bytes += v.size;
    } else if (!v.is_extern) {
      void* const p = allocate(v.size, device_allocation::variable);
      v.address = reinterpret_cast<u64>(p);
      if (!v.bytes.empty())
        std::memcpy(p, v.bytes.data(), v.bytes.size());
    }
  }
  m.shared_bytes = (m.shared_bytes + 15) / 16 * 16;
  for (auto& [name, v] : m.variables) {
    for (auto const& r : v.references) {
      u64 address = 0;
      if (auto const at = m.variables.find(r.symbol); at != m.variables.end()) {
        address = at->second.address;
      } else if (auto const f = m.functions.find(r.symbol); f != m.functions.end()) {
        address = reinterpret_cast<u64>(f->second.get());
      } else {
        die("the initializer of %s names the unknown %s", name.c_str(), r.symbol.c_str());
      }
      address += r.addend;
      std::memcpy(reinterpret_cast<u8*>(v.address) + r.offset, &address, 8);
    }
  }
}

}  // namespace emu
