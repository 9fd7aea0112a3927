// SPDX-License-Identifier: Apache-2.0
// Shared declarations of the PTX emulator. README.md describes the parts.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace emu {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s8 = std::int8_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
__extension__ typedef unsigned __int128 u128;
__extension__ typedef __int128 s128;

/// Prints a message and ends the process: the emulator never pretends success.
[[noreturn]] void die(char const* format, ...) __attribute__((format(printf, 1, 2)));

// ----- settings (environment variables, README.md) -----------------------------------------------

struct emulator_settings {
  u64 seed = 0;      ///< PTXEMU_SEED: 0 runs threads in order
  u64 preempt = 0;   ///< PTXEMU_PREEMPT: a thread is interrupted every n memory accesses on average
  int resident = 1;  ///< PTXEMU_RESIDENT: blocks that run at the same time
  bool race = false;  ///< PTXEMU_RACECHECK
  bool init = false;  ///< PTXEMU_INITCHECK
  bool lazy = true;   ///< PTXEMU_STREAMS=lazy|eager
  enum class fresh_memory : u8 {
    pattern,
    zero,
    random,
    stale
  } fresh = fresh_memory::pattern;  ///< PTXEMU_FRESH: contents of fresh memory
  bool leaks = false;               ///< PTXEMU_LEAKCHECK
  bool elsewhere =
      false;  ///< PTXEMU_ELSEWHERE: two devices; another one is current after a stream was made
  bool graphs_elsewhere =
      false;                ///< PTXEMU_GRAPHS=elsewhere: graphs run at once, as on another stream
  int trace = 0;            ///< PTXEMU_TRACE: 1 launches, 2 also calls of the runtime
  bool statistics = false;  ///< PTXEMU_STATISTICS: numbers of instructions at exit
  int costs = 0;  ///< PTXEMU_COSTS: 1: a line of counts for each launch, 2: and its busiest lines
  int max_reports = 20;  ///< PTXEMU_MAX_REPORTS: findings of the checkers before they fall silent
  u64 max_instructions = 0;  ///< PTXEMU_MAX_INSTRUCTIONS of a launch (in millions): more is a hang
  // The device
  int devices = 1, major = 9, minor = 0, sms = 132;
  int shared_optin = 227 * 1024;
  bool cooperative = true;
};
extern emulator_settings settings;
void read_settings();

// ----- PTX ---------------------------------------------------------------------------------------

enum class ptx_type : u8 {
  none,
  pred,
  b8,
  b16,
  b32,
  b64,
  b128,
  u8,
  u16,
  u32,
  u64,
  s8,
  s16,
  s32,
  s64,
  f16,
  f32,
  f64,
  bf16,
  f16x2,
  bf16x2
};
int size_of(ptx_type);
ptx_type type_named(std::string_view);  // without the dot; none if it is no type
inline bool is_signed(ptx_type t) { return t >= ptx_type::s8 && t <= ptx_type::s64; }
inline bool is_float(ptx_type t) { return t >= ptx_type::f16; }

enum class memory_space : u8 { generic, global, shared, local, constant, param };

/// Variable of a module or a function.
struct ptx_variable {
  std::string name;
  memory_space space = memory_space::global;
  u64 size = 0, align = 1;
  bool is_extern = false;
  u64 address = 0;        ///< host address, or offset in shared or local memory
  std::vector<u8> bytes;  ///< initializer
  struct symbol_reference {
    u64 offset;
    std::string symbol;
    u64 addend;
    bool generic;
  };
  std::vector<symbol_reference> references;  ///< addresses in the initializer
};

struct ptx_operand {
  enum kind_code : u8 { none, reg, imm, symbol, special, vector, address, sink } kind = none;
  int reg_id = -1;  ///< reg; base of address
  ptx_type reg_type = ptx_type::none;
  bool negated = false;  ///< !p
  u64 value = 0;         ///< imm; offset of address
  bool is_float_imm = false;
  int float_bits = 0;
  std::string name;                ///< symbol, special
  std::vector<ptx_operand> parts;  ///< vector; second destination of a|b
};

struct raw_instruction {
  std::vector<std::string> op;  ///< parts between dots
  std::vector<ptx_operand> operands;
  int guard = -1;
  bool guard_negated = false;
  u32 line = 0;  ///< of the PTX
  u32 file = 0, source_line = 0;
  std::vector<int>
      call_params;  ///< call: place, size and whether it is a result, of each .param variable
};

struct ptx_parameter {
  std::string name;
  u64 size, align, offset;
};

struct ptx_function;
struct ptx_module;

/// Decoded instruction: operands are byte offsets in the frame of a function's call.
struct decoded_instruction {
  u16 op = 0;
  u16 kind = 0;  ///< meaning depends on op
  u32 d = 0, a = 0, b = 0, c = 0, e = 0, f = 0;
  u32 line = 0;
  s64 imm = 0;
};

struct call_site {
  ptx_function* callee = nullptr;  ///< null: indirect
  struct register_move {
    u32 from, to, size;
  };
  std::vector<register_move> arguments, results;
};

/// Counts how often the lanes of a warp execute one instruction between two points where they meet.
struct issue_cell {
  u64 round = 0;
  u32 lane = 0, count = 0, most = 0;
  u32 weight = 1;  ///< instructions of the hardware
  u64 issued = 0;  ///< in the launch, by all warps
};

struct ptx_function {
  ptx_module* module = nullptr;
  std::string name;
  bool is_entry = false, has_body = false;
  std::vector<ptx_parameter> params, results;
  u64 param_bytes = 0;
  int max_threads = 0;  ///< .maxntid
  std::vector<ptx_type> regs;
  std::vector<raw_instruction> raw;
  std::unordered_map<std::string, int> labels;
  std::map<std::string, std::vector<std::string>> branch_targets;
  u64 local_bytes = 0;
  u64 shared_bytes = 0;
  std::unordered_map<std::string, ptx_variable> locals;  ///< .local and .shared variables
  u32 formal_bytes = 0;                                  ///< results and parameters of a .func
  u32 area_bytes = 0;  ///< these and the .param variables of its calls
  // decoded
  bool decoded = false, decoding = false;
  std::vector<decoded_instruction> code;
  std::vector<std::pair<u32, u32>> sources;  ///< file and line of each instruction
  std::vector<u64> constants;
  std::vector<call_site> calls;
  std::vector<std::vector<int>> tables;
  std::vector<std::string> messages;
  u32 frame_bytes = 0, area = 0;
  u64 stack_bytes = 0, local_stack = 0;  ///< with calls
  std::vector<issue_cell> cells;         ///< of each instruction; empty unless costs are counted
};

struct ptx_module {
  std::string text;
  std::vector<std::string_view> lines;
  std::unordered_map<std::string, std::unique_ptr<ptx_function>> functions;
  std::map<std::string, ptx_variable> variables;
  std::map<u32, std::string> files;
  u64 shared_bytes = 0;  ///< of .shared variables outside of kernels
  bool loaded = false;
};

std::unique_ptr<ptx_module> parse_ptx(std::string text);
/// Assigns addresses to the variables of a module and fills them.
void load(ptx_module&);
/// Decodes a function and all it calls.
void decode(ptx_function&);
/// Returns the PTX of a fat binary; empty if it has none.
std::vector<std::string> ptx_of_fatbin(void const* image);

// ----- memory ------------------------------------------------------------------------------------
// Device memory lies in one arena. Each of its bytes has a shadow: bit 0 allocated, bit 1 written.

inline constexpr u64 arena_size = u64{1} << 36;
extern u8* arena;
extern u8* shadow;
struct device_allocation {
  u64 size = 0;
  enum kind_code : u8 { device, managed, pinned, variable, graph } kind = device;
  u64 number = 0;  ///< of the allocation: 1, 2, ...
};
extern std::map<u64, device_allocation>& allocations;
void init_memory();
void* allocate(u64 bytes, device_allocation::kind_code kind);
bool release(void* pointer);
/// Makes memory of a graph valid, with fresh contents, or invalid.
void set_valid(void* pointer, bool valid);
/// The allocation with this address, or null.
std::pair<u64 const, device_allocation> const* find_allocation(void const* pointer);
inline bool in_arena(void const* p) {
  return static_cast<u64>(static_cast<u8 const*>(p) - arena) < arena_size;
}
/// Marks bytes as written by the host or by a copy; ends the process if they are not allocated.
void host_wrote(void* p, u64 bytes, char const* call);
void host_reads(void const* p, u64 bytes, char const* call);
/// Reports that a copy reads what was never written.
void report_copy(char const* call, void const* p, u64 bytes, u64 at);

inline constexpr u64 shared_window = u64{1} << 48, local_window = u64{2} << 48,
                     param_window = u64{3} << 48;
inline constexpr u64 shared_base = 1024;  ///< offset of the first shared variable; 0 is no variable

// ----- execution ---------------------------------------------------------------------------------

struct extents {
  u32 x, y, z;
};
struct launch_request {
  ptx_function* kernel = nullptr;
  extents grid{}, block{};
  u64 shared = 0;
  bool cooperative = false;
  std::vector<u8> params;
};
/// Runs a kernel to its end.
void execute(launch_request const&);
/// `total_path` sums the instructions of the longest thread of every launch.
extern u64 total_instructions, total_launches, total_path;
/// Reports device memory that is still allocated.
void report_leaks();
/// Runs all work that streams still hold.
void finish_streams();
int static_shared(ptx_function const&);

std::string demangled(std::string const&);

/// xorshift generator
struct random_numbers {
  u64 state;
  explicit random_numbers(u64 seed) : state(seed * 0x9e3779b97f4a7c15u + 0x1234567u) {
    next();
    next();
  }
  u64 next() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  }
  u64 below(u64 n) { return n == 0 ? 0 : (next() >> 11) % n; }
};
extern random_numbers random_source;

}  // namespace emu
