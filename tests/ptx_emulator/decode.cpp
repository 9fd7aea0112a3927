// SPDX-License-Identifier: Apache-2.0
// Decodes the raw instructions of a function: selects operations, gives registers places in a frame
// by a linear scan of their lifetimes, and resolves labels, symbols and calls.
#include <algorithm>
#include <bit>
#include <cstring>

#include "ops.hpp"

namespace emu {

namespace {

constexpr u32 constant_bit = 0x80000000u;
constexpr u8 D = 1, A = 2, B = 4, C = 8, E = 16, F = 32;

struct draft {
  decoded_instruction ins;
  u8 defs = 0, uses = 0;
  u32 file = 0, line = 0;
};

class decoder {
 public:
  explicit decoder(ptx_function& f) : f_(f) {}

  void run() {
    regs_ = static_cast<u32>(f_.regs.size());
    std::vector<int> start(f_.raw.size() + 1);
    for (std::size_t i = 0; i < f_.raw.size(); ++i) {
      start[i] = static_cast<int>(drafts_.size());
      raw_ = &f_.raw[i];
      translate();
    }
    start[f_.raw.size()] = static_cast<int>(drafts_.size());
    raw_ = nullptr;
    draft end;
    end.ins.op = op_RET;
    drafts_.push_back(end);
    for (auto const& [at, label] : jumps_) {
      drafts_[at].ins.imm = start[static_cast<std::size_t>(label_place(label))];
    }
    for (auto const& names : tables_) {
      std::vector<int> table;
      for (std::string const& name : names)
        table.push_back(start[static_cast<std::size_t>(label_place(name))]);
      f_.tables.push_back(table);
    }
    assign_places();
    finish();
  }

 private:
  int label_place(std::string const& name) const {
    auto const at = f_.labels.find(name);
    if (at == f_.labels.end())
      die("%s: no label %s", f_.name.c_str(), name.c_str());
    return at->second;
  }

  // ----- emission --------------------------------------------------------------------------------

  draft& emit(opcode_id op, u8 defs, u8 uses) {
    draft d;
    d.ins.op = op;
    d.ins.line = raw_->line;
    d.defs = defs;
    d.uses = uses;
    d.file = raw_->file;
    d.line = raw_->source_line;
    drafts_.push_back(d);
    return drafts_.back();
  }
  void unsupported(std::string const& why) {
    drafts_.resize(first_);
    std::erase_if(frame_, [&](std::size_t at) { return at >= first_; });
    std::erase_if(prints_, [&](std::size_t at) { return at >= first_; });
    emit(op_UNSUPPORTED, 0, 0).ins.imm = static_cast<s64>(f_.messages.size());
    f_.messages.push_back("unsupported: " + why);
  }
  u32 temporary() { return regs_++; }
  u32 constant(u64 value) {
    auto const [at, is_new] = constant_ids_.emplace(value, static_cast<u32>(f_.constants.size()));
    if (is_new)
      f_.constants.push_back(value);
    return at->second | constant_bit;
  }

  bool has(char const* s) const {
    return std::find(raw_->op.begin() + 1, raw_->op.end(), s) != raw_->op.end();
  }
  /// The n-th type of the opcode from the end.
  ptx_type type(int from_end = 0) const {
    for (auto part = raw_->op.rbegin(); part != raw_->op.rend() - 1; ++part) {
      if (ptx_type const t = type_named(*part); t != ptx_type::none && from_end-- == 0)
        return t;
    }
    return ptx_type::none;
  }

  /// Address of a symbol in its own space, as mov gives it.
  bool symbol_address(std::string const& name, u64& value, memory_space& space) {
    if (auto const at = f_.locals.find(name); at != f_.locals.end()) {
      space = at->second.space;
      value = space == memory_space::shared
                  ? shared_base + f_.module->shared_bytes + at->second.address
                  : at->second.address;
      return true;
    }
    if (auto const at = f_.module->variables.find(name); at != f_.module->variables.end()) {
      space = at->second.space;
      value = at->second.address;
      if (space == memory_space::shared && at->second.is_extern) {
        dynamic_shared_ = true;
      }
      return true;
    }
    if (f_.is_entry) {
      for (ptx_parameter const& p : f_.params) {
        if (p.name == name) {
          space = memory_space::param;
          value = param_window + p.offset;
          return true;
        }
      }
    }
    if (auto const at = f_.module->functions.find(name); at != f_.module->functions.end()) {
      space = memory_space::constant;
      value = reinterpret_cast<u64>(at->second.get());
      if (at->second->has_body)
        decode(*at->second);
      indirect_ = true;
      return true;
    }
    return false;
  }

  /// Source operand as a register or constant; emits what it needs.
  u32 source(ptx_operand const& o, ptx_type t) {
    switch (o.kind) {
      case ptx_operand::reg:
        if (o.negated) {
          u32 const r = temporary();
          draft& d = emit(op_NOTP, D, A);
          d.ins.d = r;
          d.ins.a = static_cast<u32>(o.reg_id);
          return r;
        }
        return static_cast<u32>(o.reg_id);
      case ptx_operand::imm: {
        u64 v = o.value;
        if (o.is_float_imm && o.float_bits == 64 && t == ptx_type::f32) {
          v = std::bit_cast<u32>(static_cast<float>(std::bit_cast<double>(v)));
        } else if (o.is_float_imm && o.float_bits == 32 && t == ptx_type::f64) {
          v = std::bit_cast<u64>(static_cast<double>(std::bit_cast<float>(static_cast<u32>(v))));
        }
        return constant(v);
      }
      case ptx_operand::symbol: {
        u64 v = 0;
        memory_space space{};
        if (!symbol_address(o.name, v, space)) {
          problem_ = "unknown symbol " + o.name;
          return 0;
        }
        if (space == memory_space::local) {
          u32 const r = temporary();
          draft& d = emit(op_LOCAL_ADDRESS, D, 0);
          d.ins.d = r;
          d.ins.imm = static_cast<s64>(v + o.value);
          return r;
        }
        if (space == memory_space::shared && is_dynamic(o.name)) {
          u32 const r = temporary();
          draft& d = emit(op_SREG, D, 0);
          d.ins.d = r;
          d.ins.kind = static_cast<u16>(special_register::dynamic_shared);
          if (o.value != 0) {
            draft& e = emit(op_ADDI, D, A);
            e.ins.d = e.ins.a = r;
            e.ins.imm = static_cast<s64>(o.value);
          }
          return r;
        }
        return constant(v + o.value);
      }
      case ptx_operand::special: {
        u32 const r = temporary();
        special(o.name, r);
        return r;
      }
      default:
        problem_ = "an operand of this kind";
        return 0;
    }
  }
  bool is_dynamic(std::string const& name) const {
    if (f_.locals.contains(name))
      return false;
    auto const at = f_.module->variables.find(name);
    return at != f_.module->variables.end() && at->second.space == memory_space::shared &&
           at->second.is_extern;
  }
  u32 destination(ptx_operand const& o) {
    if (o.kind == ptx_operand::reg)
      return static_cast<u32>(o.reg_id);
    if (o.kind == ptx_operand::sink)
      return temporary();
    problem_ = "a destination of this kind";
    return 0;
  }
  void special(std::string const& name, u32 to) {
    static auto const& names = *new std::unordered_map<std::string, special_register>{
        {"%tid.x", special_register::tid_x},
        {"%tid.y", special_register::tid_y},
        {"%tid.z", special_register::tid_z},
        {"%ntid.x", special_register::ntid_x},
        {"%ntid.y", special_register::ntid_y},
        {"%ntid.z", special_register::ntid_z},
        {"%ctaid.x", special_register::ctaid_x},
        {"%ctaid.y", special_register::ctaid_y},
        {"%ctaid.z", special_register::ctaid_z},
        {"%nctaid.x", special_register::nctaid_x},
        {"%nctaid.y", special_register::nctaid_y},
        {"%nctaid.z", special_register::nctaid_z},
        {"%laneid", special_register::laneid},
        {"%warpid", special_register::warpid},
        {"%nwarpid", special_register::nwarpid},
        {"%smid", special_register::smid},
        {"%nsmid", special_register::nsmid},
        {"%gridid", special_register::gridid},
        {"%lanemask_lt", special_register::lt},
        {"%lanemask_le", special_register::le},
        {"%lanemask_gt", special_register::gt},
        {"%lanemask_ge", special_register::ge},
        {"%lanemask_eq", special_register::eq},
        {"%clock", special_register::clock},
        {"%clock64", special_register::clock64},
        {"%globaltimer", special_register::timer},
        {"%envreg1", special_register::envreg1},
        {"%envreg2", special_register::envreg2},
        {"%dynamic_smem_size", special_register::dynamic_shared},
        {"%total_smem_size", special_register::total_shared}};
    if (name == "WARP_SZ") {
      move(to, constant(32));
      return;
    }
    auto const at = names.find(name);
    if (at == names.end() || name == "%dynamic_smem_size") {
      problem_ = "special register " + name;
      return;
    }
    draft& d = emit(op_SREG, D, 0);
    d.ins.d = to;
    d.ins.kind = static_cast<u16>(at->second);
  }
  void move(u32 to, u32 from) {
    draft& d = emit(op_MOV, D, A);
    d.ins.d = to;
    d.ins.a = from;
  }

  // ----- instructions ----------------------------------------------------------------------------

  void translate() {
    raw_instruction const& r = *raw_;
    problem_.clear();
    first_ = drafts_.size();
    std::size_t skip = 0;
    std::string const& name = r.op[0];
    if (r.guard >= 0 && name == "bra") {
      draft& d = emit(r.guard_negated ? op_BRA_IFNOT : op_BRA_IF, 0, A);
      d.ins.a = static_cast<u32>(r.guard);
      jumps_.emplace_back(drafts_.size() - 1, r.operands[0].name);
      return;
    }
    if (r.guard >= 0) {
      draft& d = emit(r.guard_negated ? op_BRA_IF : op_BRA_IFNOT, 0, A);
      d.ins.a = static_cast<u32>(r.guard);
      skip = drafts_.size();
      first_ = skip;
    }
    one(name);
    if (!problem_.empty()) {
      std::string text;
      for (std::string const& part : r.op)
        text += (text.empty() ? "" : ".") + part;
      unsupported(problem_ + " (" + text + ")");
    }
    if (skip != 0) {
      drafts_[skip - 1].ins.imm = static_cast<s64>(drafts_.size());
    }
  }

  ptx_operand const& arg(std::size_t i) {
    static ptx_operand const& nothing = *new ptx_operand;
    return i < raw_->operands.size() ? raw_->operands[i] : nothing;
  }

  void binary(opcode_id op, ptx_type t) {
    u32 const a = source(arg(1), t), b = source(arg(2), t);
    draft& d = emit(op, D, A | B);
    d.ins.d = destination(arg(0));
    d.ins.a = a;
    d.ins.b = b;
  }
  void unary(opcode_id op, ptx_type t) {
    u32 const a = source(arg(1), t);
    draft& d = emit(op, D, A);
    d.ins.d = destination(arg(0));
    d.ins.a = a;
  }
  void ternary(opcode_id op, ptx_type t, ptx_type third) {
    u32 const a = source(arg(1), t), b = source(arg(2), t), c = source(arg(3), third);
    draft& d = emit(op, D, A | B | C);
    d.ins.d = destination(arg(0));
    d.ins.a = a;
    d.ins.b = b;
    d.ins.c = c;
  }
  /// Of the operations for u16, s16, u32, s32, u64, s64, that of the type.
  opcode_id of_type(ptx_type t, opcode_id u_16, opcode_id s_16, opcode_id u_32, opcode_id s_32,
                    opcode_id u_64, opcode_id s_64) {
    switch (t) {
      case ptx_type::b16:
      case ptx_type::u16:
        return u_16;
      case ptx_type::s16:
        return s_16;
      case ptx_type::b32:
      case ptx_type::u32:
        return u_32;
      case ptx_type::s32:
        return s_32;
      case ptx_type::b64:
      case ptx_type::u64:
        return u_64;
      case ptx_type::s64:
        return s_64;
      default:
        problem_ = "type";
        return op_NOP;
    }
  }
#define OF_TYPE(t, name)                                                                          \
  of_type(t, op_##name##_u16, op_##name##_s16, op_##name##_u32, op_##name##_s32, op_##name##_u64, \
          op_##name##_s64)

  rounding_mode rounding() const {
    return has("rz") || has("rzi")   ? rounding_mode::zero
           : has("rm") || has("rmi") ? rounding_mode::down
           : has("rp") || has("rpi") ? rounding_mode::up
                                     : rounding_mode::nearest;
  }
  /// Floating operation with a rounding, a flush or saturation.
  void slow(slow_operation op, ptx_type t, int operands) {
    if (t != ptx_type::f32 && t != ptx_type::f64) {
      problem_ = "type";
      return;
    }
    u32 ids[3] = {};
    for (int i = 0; i < operands; ++i)
      ids[i] = source(arg(static_cast<std::size_t>(i) + 1), t);
    draft& d = emit(op_FSLOW, D,
                    static_cast<u8>(operands == 1   ? A
                                    : operands == 2 ? A | B
                                                    : A | B | C));
    d.ins.d = destination(arg(0));
    d.ins.a = ids[0];
    d.ins.b = ids[1];
    d.ins.c = ids[2];
    d.ins.kind = static_cast<u16>(op);
    d.ins.imm = static_cast<s64>(rounding()) | (t == ptx_type::f64 ? 16 : 0) |
                (has("sat") ? 32 : 0) | (has("ftz") ? 64 : 0);
  }
  bool plain_float() const {
    return rounding() == rounding_mode::nearest && !has("sat") && !has("ftz");
  }
  void floating(slow_operation s, opcode_id for_32, opcode_id for_64, ptx_type t, int operands) {
    if (!plain_float() || (t != ptx_type::f32 && t != ptx_type::f64)) {
      slow(s, t, operands);
    } else if (operands == 1) {
      unary(t == ptx_type::f32 ? for_32 : for_64, t);
    } else if (operands == 2) {
      binary(t == ptx_type::f32 ? for_32 : for_64, t);
    } else {
      ternary(t == ptx_type::f32 ? for_32 : for_64, t, t);
    }
  }
  bool carries() const {
    return has("cc") || raw_->op[0] == "addc" || raw_->op[0] == "subc" || raw_->op[0] == "madc";
  }
  void carry(carry_kind op, ptx_type t) {
    int const operands = op == carry_kind::add || op == carry_kind::sub ? 2 : 3;
    u32 ids[3] = {};
    for (int i = 0; i < operands; ++i)
      ids[i] = source(arg(static_cast<std::size_t>(i) + 1), t);
    draft& d = emit(op_CARRY, D, static_cast<u8>(operands == 2 ? A | B : A | B | C));
    d.ins.d = destination(arg(0));
    d.ins.a = ids[0];
    d.ins.b = ids[1];
    d.ins.c = ids[2];
    bool const in = raw_->op[0] == "addc" || raw_->op[0] == "subc" || raw_->op[0] == "madc";
    d.ins.kind = static_cast<u16>(op);
    d.ins.imm =
        (size_of(t) == 8 ? 1 : 0) | (in ? 2 : 0) | (has("cc") ? 4 : 0) | (is_signed(t) ? 8 : 0);
  }

  void one(std::string const& name) {
    ptx_type const t = type();
    if (name == "mov")
      return mov(t);
    if (name == "ld" || name == "ldu")
      return load_or_store(true);
    if (name == "st")
      return load_or_store(false);
    if (name == "setp")
      return setp();
    if (name == "set")
      return set();
    if (name == "cvt")
      return cvt();
    if (name == "cvta")
      return cvta();
    if (name == "bra") {
      emit(op_BRA, 0, 0);
      jumps_.emplace_back(drafts_.size() - 1, arg(0).name);
      return;
    }
    if (name == "add" || name == "addc") {
      if (is_float(t))
        return floating(slow_operation::add, op_FADD_f32, op_FADD_f64, t, 2);
      if (carries())
        return carry(carry_kind::add, t);
      if (has("sat"))
        return binary(op_ADDSAT_s32, t);
      return binary(op_ADD, t);
    }
    if (name == "sub" || name == "subc") {
      if (is_float(t))
        return floating(slow_operation::sub, op_FSUB_f32, op_FSUB_f64, t, 2);
      if (carries())
        return carry(carry_kind::sub, t);
      if (has("sat"))
        return binary(op_SUBSAT_s32, t);
      return binary(op_SUB, t);
    }
    if (name == "mul") {
      if (is_float(t))
        return floating(slow_operation::mul, op_FMUL_f32, op_FMUL_f64, t, 2);
      if (has("wide")) {
        return binary(t == ptx_type::u16   ? op_MULW_u16
                      : t == ptx_type::s16 ? op_MULW_s16
                      : t == ptx_type::u32 ? op_MULW_u32
                                           : op_MULW_s32,
                      t);
      }
      if (has("hi"))
        return binary(OF_TYPE(t, MULHI), t);
      return binary(op_MULLO, t);
    }
    if (name == "mad" || name == "madc") {
      if (is_float(t))
        return floating(slow_operation::fma, op_FFMA_f32, op_FFMA_f64, t, 3);
      if (carries())
        return carry(has("hi") ? carry_kind::madhi : carry_kind::madlo, t);
      if (has("sat")) {
        problem_ = "saturation";
        return;
      }
      if (has("wide")) {
        return ternary(t == ptx_type::u16   ? op_MADW_u16
                       : t == ptx_type::s16 ? op_MADW_s16
                       : t == ptx_type::u32 ? op_MADW_u32
                                            : op_MADW_s32,
                       t, t);
      }
      if (has("hi"))
        return ternary(t == ptx_type::u32   ? op_MADHI_u32
                       : t == ptx_type::s32 ? op_MADHI_s32
                       : t == ptx_type::u64 ? op_MADHI_u64
                                            : op_MADHI_s64,
                       t, t);
      return ternary(op_MADLO, t, t);
    }
    if (name == "fma")
      return floating(slow_operation::fma, op_FFMA_f32, op_FFMA_f64, t, 3);
    if (name == "div") {
      if (is_float(t))
        return floating(slow_operation::div, op_FDIV_f32, op_FDIV_f64, t, 2);
      return binary(OF_TYPE(t, DIV), t);
    }
    if (name == "rem")
      return binary(OF_TYPE(t, REM), t);
    if (name == "sqrt")
      return floating(slow_operation::sqrt, op_FSQRT_f32, op_FSQRT_f64, t, 1);
    if (name == "rcp")
      return slow(slow_operation::rcp, t, 1);
    if (name == "rsqrt")
      return slow(slow_operation::rsqrt, t, 1);
    if (name == "sin")
      return slow(slow_operation::sin, t, 1);
    if (name == "cos")
      return slow(slow_operation::cos, t, 1);
    if (name == "ex2")
      return slow(slow_operation::ex2, t, 1);
    if (name == "lg2")
      return slow(slow_operation::lg2, t, 1);
    if (name == "tanh")
      return slow(slow_operation::tanh, t, 1);
    if (name == "min") {
      if (is_float(t))
        return has("NaN") ? slow(slow_operation::min_nan, t, 2)
                          : floating(slow_operation::min, op_FMIN_f32, op_FMIN_f64, t, 2);
      return binary(OF_TYPE(t, MIN), t);
    }
    if (name == "max") {
      if (is_float(t))
        return has("NaN") ? slow(slow_operation::max_nan, t, 2)
                          : floating(slow_operation::max, op_FMAX_f32, op_FMAX_f64, t, 2);
      return binary(OF_TYPE(t, MAX), t);
    }
    if (name == "neg") {
      if (is_float(t))
        return floating(slow_operation::neg, op_FNEG_f32, op_FNEG_f64, t, 1);
      return unary(op_NEG, t);
    }
    if (name == "abs") {
      if (is_float(t))
        return floating(slow_operation::abs, op_FABS_f32, op_FABS_f64, t, 1);
      return unary(t == ptx_type::s16   ? op_ABS_s16
                   : t == ptx_type::s32 ? op_ABS_s32
                                        : op_ABS_s64,
                   t);
    }
    if (name == "copysign")
      return binary(t == ptx_type::f32 ? op_COPYSIGN_f32 : op_COPYSIGN_f64, t);
    if (name == "testp") {
      u32 const a = source(arg(1), t);
      draft& d = emit(op_TESTP, D, A);
      d.ins.d = destination(arg(0));
      d.ins.a = a;
      static char const* const kinds[] = {"finite",     "infinite", "number",
                                          "notanumber", "normal",   "subnormal"};
      for (u16 i = 0; i < 6; ++i)
        if (has(kinds[i]))
          d.ins.kind = i;
      d.ins.imm = t == ptx_type::f64;
      return;
    }
    if (name == "and")
      return binary(op_AND, t);
    if (name == "or")
      return binary(op_OR, t);
    if (name == "xor")
      return binary(op_XOR, t);
    if (name == "not")
      return unary(t == ptx_type::pred ? op_NOTP : op_NOT, t);
    if (name == "cnot")
      return unary(size_of(t) == 8 ? op_CNOT64 : op_CNOT32, t);
    if (name == "shl")
      return binary(size_of(t) == 2 ? op_SHL_16 : size_of(t) == 4 ? op_SHL_32 : op_SHL_64, t);
    if (name == "shr")
      return binary(OF_TYPE(t, SHR), t);
    if (name == "bfe")
      return ternary(t == ptx_type::u32   ? op_BFE_u32
                     : t == ptx_type::s32 ? op_BFE_s32
                     : t == ptx_type::u64 ? op_BFE_u64
                                          : op_BFE_s64,
                     t, ptx_type::u32);
    if (name == "bfi") {
      u32 const a = source(arg(1), t), b = source(arg(2), t), c = source(arg(3), ptx_type::u32),
                e = source(arg(4), ptx_type::u32);
      draft& d = emit(size_of(t) == 4 ? op_BFI_32 : op_BFI_64, D, A | B | C | E);
      d.ins.d = destination(arg(0));
      d.ins.a = a;
      d.ins.b = b;
      d.ins.c = c;
      d.ins.e = e;
      return;
    }
    if (name == "bfind") {
      unary(op_BFIND, t);
      drafts_.back().ins.kind = static_cast<u16>(
          (size_of(t) == 8 ? 1 : 0) | (is_signed(t) ? 2 : 0) | (has("shiftamt") ? 4 : 0));
      return;
    }
    if (name == "clz")
      return unary(size_of(t) == 4 ? op_CLZ_32 : op_CLZ_64, t);
    if (name == "popc")
      return unary(size_of(t) == 4 ? op_POPC_32 : op_POPC_64, t);
    if (name == "brev")
      return unary(size_of(t) == 4 ? op_BREV_32 : op_BREV_64, t);
    if (name == "fns")
      return ternary(op_FNS, ptx_type::b32, ptx_type::s32);
    if (name == "lop3") {
      if (has("or") || has("and")) {
        problem_ = "lop3 with a predicate";
        return;
      }
      ternary(op_LOP3, t, t);
      drafts_.back().ins.imm = static_cast<s64>(arg(4).value);
      return;
    }
    if (name == "shf") {
      ternary(op_SHF, t, ptx_type::u32);
      drafts_.back().ins.kind = static_cast<u16>((has("l") ? 1 : 0) | (has("clamp") ? 2 : 0));
      return;
    }
    if (name == "prmt") {
      static char const* const modes[] = {"", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"};
      ternary(op_PRMT, t, ptx_type::u32);
      for (u16 i = 1; i < 7; ++i)
        if (has(modes[i]))
          drafts_.back().ins.kind = i;
      return;
    }
    if (name == "bmsk") {
      binary(op_BMSK, ptx_type::u32);
      drafts_.back().ins.kind = has("clamp");
      return;
    }
    if (name == "sad" && size_of(t) == 4)
      return ternary(is_signed(t) ? op_SAD_s32 : op_SAD_u32, t, t);
    if (name == "selp")
      return ternary(op_SELP, t, ptx_type::pred);
    if (name == "slct")
      return ternary(t == ptx_type::f32 ? op_SLCTF : op_SLCT, type(1), t);
    if (name == "atom" || name == "red")
      return atom(name == "red");
    if (name == "isspacep") {
      unary(op_ISSPACE, ptx_type::b64);
      drafts_.back().ins.kind = has("global")                         ? 0
                                : has("shared") || has("shared::cta") ? 1
                                : has("local")                        ? 2
                                : has("param")                        ? 3
                                                                      : 9;
      return;
    }
    if (name == "bar" || name == "barrier")
      return bar();
    if (name == "shfl") {
      // shfl.sync.mode.b32 d[|p], a, b, c, mask
      u32 const a = source(arg(1), t), b = source(arg(2), ptx_type::u32),
                c = source(arg(3), ptx_type::u32), m = source(arg(4), ptx_type::u32);
      draft& d = emit(op_SHFL, D | E, A | B | C | F);
      d.ins.d = destination(arg(0));
      d.ins.e = arg(0).parts.empty() ? temporary() : destination(arg(0).parts[0]);
      d.ins.a = a;
      d.ins.b = b;
      d.ins.c = c;
      d.ins.f = m;
      d.ins.kind = has("up") ? 0 : has("down") ? 1 : has("bfly") ? 2 : 3;
      return;
    }
    if (name == "vote") {
      u32 const a = source(arg(1), ptx_type::pred), m = source(arg(2), ptx_type::u32);
      draft& d = emit(op_VOTE, D, A | F);
      d.ins.d = destination(arg(0));
      d.ins.a = a;
      d.ins.f = m;
      d.ins.kind = has("all") ? 0 : has("any") ? 1 : has("uni") ? 2 : 3;
      return;
    }
    if (name == "match") {
      u32 const a = source(arg(1), t), m = source(arg(2), ptx_type::u32);
      draft& d = emit(op_MATCH, D | E, A | F);
      d.ins.d = destination(arg(0));
      d.ins.e = arg(0).parts.empty() ? temporary() : destination(arg(0).parts[0]);
      d.ins.a = a;
      d.ins.f = m;
      d.ins.kind = static_cast<u16>((has("all") ? 1 : 0) | (size_of(t) == 8 ? 2 : 0));
      return;
    }
    if (name == "redux") {
      u32 const a = source(arg(1), t), m = source(arg(2), ptx_type::u32);
      draft& d = emit(op_REDUX, D, A | F);
      d.ins.d = destination(arg(0));
      d.ins.a = a;
      d.ins.f = m;
      d.ins.kind = static_cast<u16>(has("add")   ? 0
                                    : has("min") ? 1
                                    : has("max") ? 2
                                    : has("and") ? 3
                                    : has("or")  ? 4
                                                 : 5);
      d.ins.imm = is_signed(t);
      if (is_float(t))
        problem_ = "redux of floating point";
      return;
    }
    if (name == "elect") {
      u32 const m = source(arg(1), ptx_type::u32);
      draft& d = emit(op_ELECT, D | E, F);
      d.ins.d = destination(arg(0));
      d.ins.e = arg(0).parts.empty() ? temporary() : destination(arg(0).parts[0]);
      d.ins.f = m;
      return;
    }
    if (name == "activemask") {
      emit(op_ACTIVEMASK, D, 0).ins.d = destination(arg(0));
      return;
    }
    if (name == "membar" || name == "fence") {
      emit(op_FENCE, 0, 0);
      return;
    }
    if (name == "nanosleep") {
      emit(op_YIELD, 0, 0);
      return;
    }
    if (name == "griddepcontrol" || name == "prefetch" || name == "prefetchu" ||
        name == "pmevent") {
      emit(op_NOP, 0, 0);
      return;
    }
    if (name == "call")
      return call();
    if (name == "ret") {
      emit(op_RET, 0, 0);
      return;
    }
    if (name == "exit") {
      emit(op_EXIT, 0, 0);
      return;
    }
    if (name == "trap" || name == "brkpt") {
      emit(op_TRAP, 0, 0);
      return;
    }
    if (name == "brx") {
      u32 const a = source(arg(0), ptx_type::u32);
      draft& d = emit(op_BRX, 0, A);
      d.ins.a = a;
      d.ins.imm = static_cast<s64>(tables_.size());
      auto const at = f_.branch_targets.find(arg(1).name);
      if (at == f_.branch_targets.end()) {
        problem_ = "no targets";
        return;
      }
      tables_.push_back(at->second);
      return;
    }
    problem_ = "instruction " + name;
  }

  void mov(ptx_type t) {
    ptx_operand const& to = arg(0);
    ptx_operand const& from = arg(1);
    if (from.kind == ptx_operand::vector) {  // pack
      std::size_t const n = from.parts.size();
      int const part = size_of(t) / static_cast<int>(n);
      u32 ids[4] = {};
      for (std::size_t i = 0; i < n && i < 4; ++i)
        ids[i] = source(from.parts[i], ptx_type::none);
      opcode_id const op = n == 2 && part == 4   ? op_PACK_32
                           : n == 2 && part == 2 ? op_PACK_16
                           : n == 4 && part == 2 ? op_PACK4_16
                           : n == 2 && part == 1 ? op_PACK_8
                           : n == 4 && part == 1 ? op_PACK4_8
                                                 : op_NOP;
      if (op == op_NOP)
        problem_ = "vector";
      draft& d = emit(op, D, static_cast<u8>(n == 2 ? A | B : A | B | C | E));
      d.ins.d = destination(to);
      d.ins.a = ids[0];
      d.ins.b = ids[1];
      d.ins.c = ids[2];
      d.ins.e = ids[3];
      return;
    }
    if (to.kind == ptx_operand::vector) {
      std::size_t const n = to.parts.size();
      int const part = size_of(t) / static_cast<int>(n);
      u32 const a = source(from, t);
      opcode_id const op = n == 2 && part == 4   ? op_UNPACK_32
                           : n == 2 && part == 2 ? op_UNPACK_16
                           : n == 4 && part == 2 ? op_UNPACK4_16
                           : n == 2 && part == 1 ? op_UNPACK_8
                           : n == 4 && part == 1 ? op_UNPACK4_8
                                                 : op_NOP;
      if (op == op_NOP)
        problem_ = "vector";
      draft& d = emit(op, static_cast<u8>(n == 2 ? D | B : D | B | C | E), A);
      d.ins.a = a;
      d.ins.d = destination(to.parts[0]);
      d.ins.b = destination(to.parts[1]);
      if (n == 4) {
        d.ins.c = destination(to.parts[2]);
        d.ins.e = destination(to.parts[3]);
      }
      return;
    }
    if (t == ptx_type::b128) {
      problem_ = "128-bit register";
      return;
    }
    if (from.kind == ptx_operand::special)
      return special(from.name, destination(to));
    u32 const a = source(from, t);
    move(destination(to), a);
  }

  // ----- memory ----------------------------------------------------------------------------------

  memory_space space() const {
    for (std::string const& part : raw_->op) {
      if (part == "global")
        return memory_space::global;
      if (part == "shared" || part == "shared::cta")
        return memory_space::shared;
      if (part == "local")
        return memory_space::local;
      if (part == "const")
        return memory_space::constant;
      if (part == "param" || part == "param::entry" || part == "param::func")
        return memory_space::param;
    }
    return memory_space::generic;
  }
  /// Register with the address, and the offset.
  u32 address(ptx_operand const& o, s64& offset) {
    offset = static_cast<s64>(o.value);
    if (o.kind != ptx_operand::address) {
      problem_ = "an address of this kind";
      return 0;
    }
    if (!o.name.empty()) {
      ptx_operand symbol;
      symbol.kind = ptx_operand::symbol;
      symbol.name = o.name;
      return source(symbol, ptx_type::b64);
    }
    if (o.reg_id < 0) {
      offset = 0;
      return constant(o.value);
    }
    if (size_of(o.reg_type) == 4) {  // 32-bit addresses of shared memory
      u32 const r = temporary();
      draft& d = emit(op_ZX32, D, A);
      d.ins.d = r;
      d.ins.a = static_cast<u32>(o.reg_id);
      return r;
    }
    return static_cast<u32>(o.reg_id);
  }
  static opcode_id load_op(memory_space s, ptx_type t) {
    opcode_id const bases[] = {op_LD_generic_u8, op_LD_global_u8, op_LD_shared_u8, op_LD_local_u8};
    int const base = bases[s == memory_space::constant ? 1 : static_cast<int>(s)];
    int const kind = size_of(t) == 1 ? 0 : size_of(t) == 2 ? 2 : size_of(t) == 4 ? 4 : 6;
    return static_cast<opcode_id>(base + kind + (is_signed(t) && size_of(t) < 8 ? 1 : 0));
  }
  static opcode_id store_op(memory_space s, ptx_type t) {
    opcode_id const bases[] = {op_ST_generic_8, op_ST_global_8, op_ST_shared_8, op_ST_local_8};
    return static_cast<opcode_id>(bases[static_cast<int>(s)] +
                                  std::countr_zero(static_cast<unsigned>(size_of(t))));
  }
  static u16 kind_of(ptx_type t, std::size_t lanes) {
    return static_cast<u16>(size_of(t) | (is_signed(t) ? kind_signed : 0) |
                            (lanes == 2   ? kind_v2
                             : lanes == 4 ? kind_v4
                                          : 0));
  }

  void load_or_store(bool is_load) {
    memory_space s = space();
    ptx_type const t = type();
    ptx_operand const& value = arg(is_load ? 0 : 1);
    ptx_operand const& where = arg(is_load ? 1 : 0);
    std::vector<ptx_operand> values =
        value.kind == ptx_operand::vector ? value.parts : std::vector<ptx_operand>{value};
    if (size_of(t) == 16 || values.size() > 4) {
      problem_ = "width";
      return;
    }
    if (s == memory_space::param) {
      // A parameter of a kernel, or a variable of a frame.
      if (where.name == "@frame" || (!where.name.empty() && !f_.is_entry)) {
        u64 at = where.value;
        if (where.name != "@frame") {
          bool found = false;
          for (auto const* list : {&f_.params, &f_.results}) {
            for (ptx_parameter const& p : *list) {
              if (p.name == where.name) {
                at += p.offset;
                found = true;
              }
            }
          }
          if (!found)
            problem_ = "unknown parameter " + where.name;
        }
        for (std::size_t i = 0; i < values.size(); ++i) {
          u32 const id = is_load ? destination(values[i]) : source(values[i], t);
          draft& d = emit(is_load ? op_LD_frame : op_ST_frame, is_load ? D : 0, is_load ? 0 : A);
          (is_load ? d.ins.d : d.ins.a) = id;
          d.ins.kind = is_load ? kind_of(t, 1) : static_cast<u16>(size_of(t));
          d.ins.imm = static_cast<s64>(at + i * static_cast<u64>(size_of(t)));
          frame_.push_back(drafts_.size() - 1);
        }
        return;
      }
      if (!where.name.empty() && is_load) {
        u64 at = where.value;
        bool found = false;
        for (ptx_parameter const& p : f_.params) {
          if (p.name == where.name) {
            at += p.offset;
            found = true;
          }
        }
        if (!found)
          problem_ = "unknown parameter " + where.name;
        for (std::size_t i = 0; i < values.size(); ++i) {
          u32 const id = destination(values[i]);
          draft& d = emit(op_LD_kernel, D, 0);
          d.ins.d = id;
          d.ins.kind = kind_of(t, 1);
          d.ins.imm = static_cast<s64>(at + i * static_cast<u64>(size_of(t)));
        }
        return;
      }
      s = memory_space::generic;
    }
    bool const strong =
        has("volatile") || has("relaxed") || has("acquire") || has("release") || has("mmio");
    s64 offset = 0;
    u32 const a = address(where, offset);
    if (strong &&
        (s == memory_space::global || s == memory_space::generic || s == memory_space::shared)) {
      // As an atomic access; a load lets other threads run afterwards, since it may be in a loop
      // that waits.
      for (std::size_t i = 0; i < values.size(); ++i) {
        u32 const id = is_load ? destination(values[i]) : source(values[i], t);
        draft& d = emit(op_ATOM, is_load ? D : 0, static_cast<u8>(is_load ? A : A | B));
        d.ins.d = is_load ? id : 0;
        d.ins.b = is_load ? 0 : id;
        d.ins.a = a;
        d.ins.imm = offset + static_cast<s64>(i) * size_of(t);
        d.ins.kind = static_cast<u16>((is_load ? static_cast<int>(atomic_operation::load)
                                               : static_cast<int>(atomic_operation::store)) |
                                      (static_cast<int>(s) << 4));
        d.ins.e = static_cast<u32>(t);
        d.ins.f = has("volatile") ? 0 : order();
      }
      if (is_load && s != memory_space::shared)
        emit(op_YIELD, 0, 0);
      return;
    }
    if (s == memory_space::constant && !is_load)
      problem_ = "a store to constant memory";
    if (values.size() == 1) {
      if (is_load) {
        draft& d = emit(load_op(s, t), D, A);
        d.ins.d = destination(values[0]);
        d.ins.a = a;
        d.ins.imm = offset;
      } else {
        u32 const v = source(values[0], t);
        draft& d = emit(store_op(s, t), 0, A | B);
        d.ins.b = v;
        d.ins.a = a;
        d.ins.imm = offset;
      }
      return;
    }
    if (s == memory_space::constant)
      s = memory_space::global;
    u32 ids[4] = {};
    for (std::size_t i = 0; i < values.size(); ++i)
      ids[i] = is_load ? destination(values[i]) : source(values[i], t);
    u8 const bits = values.size() == 2 ? D | B : D | B | C | E;
    opcode_id const loads[] = {op_LD_generic_V, op_LD_global_V, op_LD_shared_V, op_LD_local_V};
    opcode_id const stores[] = {op_ST_generic_V, op_ST_global_V, op_ST_shared_V, op_ST_local_V};
    draft& d = emit((is_load ? loads : stores)[static_cast<int>(s)], is_load ? bits : 0,
                    static_cast<u8>(is_load ? A : A | bits));
    d.ins.a = a;
    d.ins.d = ids[0];
    d.ins.b = ids[1];
    d.ins.c = ids[2];
    d.ins.e = ids[3];
    d.ins.kind = kind_of(t, values.size());
    d.ins.imm = offset;
  }
  u32 order() const { return has("acquire") ? 1 : has("release") ? 2 : has("acq_rel") ? 3 : 0; }

  void atom(bool is_red) {
    memory_space const s = space();
    ptx_type const t = type();
    std::size_t const at = is_red ? 0 : 1;
    s64 offset = 0;
    u32 const a = address(arg(at), offset);
    atomic_operation kind{};
    if (has("add"))
      kind = is_float(t) ? atomic_operation::fadd : atomic_operation::add;
    else if (has("min"))
      kind = atomic_operation::min;
    else if (has("max"))
      kind = atomic_operation::max;
    else if (has("inc"))
      kind = atomic_operation::inc;
    else if (has("dec"))
      kind = atomic_operation::dec;
    else if (has("and"))
      kind = atomic_operation::bit_and;
    else if (has("or"))
      kind = atomic_operation::bit_or;
    else if (has("xor"))
      kind = atomic_operation::bit_xor;
    else if (has("exch"))
      kind = atomic_operation::exch;
    else if (has("cas"))
      kind = atomic_operation::cas;
    else
      problem_ = "atomic operation";
    if (size_of(t) != 4 && size_of(t) != 8 &&
        !((kind == atomic_operation::cas || kind == atomic_operation::exch) && size_of(t) == 2))
      problem_ = "width";
    if (is_float(t) && kind != atomic_operation::fadd)
      problem_ = "type";
    if (kind == atomic_operation::fadd && t != ptx_type::f32 && t != ptx_type::f64)
      problem_ = "type";
    if (arg(at + 1).kind == ptx_operand::vector) {
      problem_ = "vector";
      return;
    }
    u32 const b = source(arg(at + 1), t);
    u32 const c = kind == atomic_operation::cas ? source(arg(at + 2), t) : 0;
    draft& d = emit(op_ATOM, is_red ? 0 : D,
                    static_cast<u8>(kind == atomic_operation::cas ? A | B | C : A | B));
    u32 const to = is_red ? temporary() : destination(arg(0));
    d.defs = D;
    d.ins.d = to;
    d.ins.a = a;
    d.ins.b = b;
    d.ins.c = c;
    d.ins.e = static_cast<u32>(t);
    d.ins.f = order();
    d.ins.kind = static_cast<u16>(static_cast<int>(kind) | (static_cast<int>(s) << 4));
    d.ins.imm = offset;
  }

  void cvta() {
    memory_space const s = space();
    bool const to = has("to");
    u32 const a = source(arg(1), ptx_type::b64);
    u64 const window = s == memory_space::shared  ? shared_window
                       : s == memory_space::local ? local_window
                                                  : 0;
    if (window == 0)
      return move(destination(arg(0)), a);
    draft& d = emit(to ? op_TO_WINDOW : op_ADDI, D, A);
    d.ins.d = destination(arg(0));
    d.ins.a = a;
    d.ins.imm = static_cast<s64>(window);
  }

  // ----- comparisons and conversions -------------------------------------------------------------

  opcode_id comparison(std::string const& c, ptx_type t) {
    static char const* const ordered[] = {"lt", "le", "gt", "ge"};
    static char const* const unsigned_[] = {"lo", "ls", "hi", "hs"};
    if (t == ptx_type::f32 || t == ptx_type::f64) {
      static char const* const names[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                          "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
      for (int i = 0; i < 14; ++i) {
        if (c == names[i])
          return static_cast<opcode_id>((t == ptx_type::f32 ? op_EQ_f32 : op_EQ_f64) + i);
      }
    } else if (is_float(t)) {
    } else if (c == "eq" || c == "ne") {
      opcode_id const ops[] = {op_EQ_16, op_EQ_32, op_EQ_64, op_NE_16, op_NE_32, op_NE_64};
      return ops[(c == "ne" ? 3 : 0) + (size_of(t) == 2 ? 0 : size_of(t) == 4 ? 1 : 2)];
    } else {
      for (int i = 0; i < 4; ++i) {
        if (c == ordered[i] || c == unsigned_[i]) {
          return static_cast<opcode_id>(
              of_type(t, op_LT_u16, op_LT_s16, op_LT_u32, op_LT_s32, op_LT_u64, op_LT_s64) + i);
        }
      }
    }
    problem_ = "comparison";
    return op_NOP;
  }
  void setp() {
    // setp.cmp[.bool].type p[|q], a, b[, [!]c]
    ptx_type const t = type();
    if (has("ftz"))
      problem_ = "ftz";
    opcode_id const op = comparison(raw_->op[1], t);
    u32 const a = source(arg(1), t), b = source(arg(2), t);
    char const* const joins[] = {"and", "or", "xor"};
    opcode_id const join_ops[] = {op_AND, op_OR, op_XOR};
    opcode_id join = op_NOP;
    for (int i = 0; i < 3; ++i)
      if (has(joins[i]))
        join = join_ops[i];
    u32 const p = destination(arg(0));
    u32 const c = join == op_NOP ? 0 : source(arg(3), ptx_type::pred);
    u32 const result = join == op_NOP && arg(0).parts.empty() ? p : temporary();
    draft& d = emit(op, D, A | B);
    d.ins.d = result;
    d.ins.a = a;
    d.ins.b = b;
    auto const finish = [&](u32 to, u32 from) {
      if (join == op_NOP)
        return move(to, from);
      draft& j = emit(join, D, A | B);
      j.ins.d = to;
      j.ins.a = from;
      j.ins.b = c;
    };
    if (!arg(0).parts.empty()) {
      u32 const q = destination(arg(0).parts[0]);
      u32 const opposite = temporary();
      draft& n = emit(op_NOTP, D, A);
      n.ins.d = opposite;
      n.ins.a = result;
      u32 const both = temporary();
      finish(both, opposite);
      finish(p, result);
      move(q, both);
    } else if (result != p) {
      finish(p, result);
    }
  }
  void set() {
    // set.cmp[.bool].dtype.stype
    ptx_type const from = type(0), to = type(1);
    if (has("and") || has("or") || has("xor"))
      problem_ = "set with a predicate";
    u32 const a = source(arg(1), from), b = source(arg(2), from);
    u32 const p = temporary();
    draft& d = emit(comparison(raw_->op[1], from), D, A | B);
    d.ins.d = p;
    d.ins.a = a;
    d.ins.b = b;
    u32 const yes = constant(to == ptx_type::f32 ? std::bit_cast<u32>(1.0f) : 0xffffffffu),
              no = constant(0);
    draft& s = emit(op_SELP, D, A | B | C);
    s.ins.d = destination(arg(0));
    s.ins.a = yes;
    s.ins.b = no;
    s.ins.c = p;
  }
  void cvt() {
    ptx_type const from = type(0), to = type(1);
    if (to == ptx_type::f16x2 || to == ptx_type::bf16x2 || raw_->operands.size() != 2) {
      problem_ = "packed conversion";
      return;
    }
    bool const sat = has("sat");
    if (!is_float(from) && !is_float(to) && !sat) {
      // The smaller width counts; the sign is that of the source if it is widened, else that of the
      // target.
      int const width = std::min(size_of(from), size_of(to));
      bool const negative = size_of(to) > size_of(from) ? is_signed(from) : is_signed(to);
      // Wider registers hold the value extended by the sign of the target.
      bool extends = negative;
      if (size_of(to) > size_of(from) && is_signed(from) && !is_signed(to)) {
        // s8 -> u16 in a 32-bit register: bits above the target are zero.
        u32 const a = source(arg(1), from), r = temporary();
        draft& d = emit(width == 1 ? op_SX8 : width == 2 ? op_SX16 : op_SX32, D, A);
        d.ins.d = r;
        d.ins.a = a;
        draft& e = emit(size_of(to) == 2 ? op_ZX16 : size_of(to) == 4 ? op_ZX32 : op_MOV, D, A);
        e.ins.d = destination(arg(0));
        e.ins.a = r;
        return;
      }
      opcode_id const zero[] = {op_ZX8, op_ZX16, op_NOP, op_ZX32},
                      sign[] = {op_SX8, op_SX16, op_NOP, op_SX32};
      return unary(width == 8 ? op_MOV : (extends ? sign : zero)[width - 1], from);
    }
    if (from == ptx_type::s32 && to == ptx_type::f64)
      return unary(op_S32_F64, from);
    if (from == ptx_type::f32 && to == ptx_type::f64 && !has("ftz") && !sat)
      return unary(op_F32_F64, from);
    bool const integral = has("rni") || has("rzi") || has("rmi") || has("rpi");
    unary(op_CVT, from);
    drafts_.back().ins.kind = static_cast<u16>(static_cast<int>(from) | static_cast<int>(to) << 5);
    drafts_.back().ins.imm = static_cast<s64>(rounding()) | (sat ? 32 : 0) | (has("ftz") ? 64 : 0) |
                             (integral ? 128 : 0) | (has("relu") ? 256 : 0);
    if (has("relu") || has("rna") || has("rs"))
      problem_ = "conversion";
  }

  void bar() {
    if (has("warp")) {
      u32 const m = source(arg(0), ptx_type::u32);
      emit(op_WARPBAR, 0, F).ins.f = m;
      return;
    }
    // bar.sync a[, b]; bar.arrive a, b; bar.red.op d, a[, b], [!]c
    bool const red = has("red"), arrive = has("arrive"), is_cta_cluster = has("cluster");
    if (is_cta_cluster) {
      problem_ = "cluster barrier";
      return;
    }
    std::size_t const first = red ? 1 : 0;
    std::size_t const last = raw_->operands.size() - (red ? 1 : 0);
    u32 const id = first < last ? source(arg(first), ptx_type::u32) : constant(0);
    u32 const count = first + 1 < last ? source(arg(first + 1), ptx_type::u32) : constant(0);
    u32 const p = red ? source(arg(last), ptx_type::pred) : constant(0);
    u32 const to = red ? destination(arg(0)) : temporary();
    draft& d = emit(op_BAR, D, A | B | C);
    d.ins.d = to;
    d.ins.a = id;
    d.ins.b = count;
    d.ins.c = p;
    // A bar is aligned, a barrier only if it says so.
    d.ins.kind =
        static_cast<u16>((red ? (has("popc")  ? 1
                                 : has("and") ? 2
                                              : 3)
                              : 0) |
                         (arrive ? 4 : 0) | (raw_->op[0] == "bar" || has("aligned") ? 8 : 0));
  }

  void call() {
    ptx_operand const& o = arg(0);
    if (o.name == "vprintf" || o.name == "__assertfail") {
      draft& d = emit(o.name == "vprintf" ? op_PRINTF : op_ASSERT, 0, 0);
      u32 at[2] = {};
      int n = 0;
      for (std::size_t i = 0; i < raw_->call_params.size(); i += 3) {
        if (raw_->call_params[i + 2] == 0 && n < 2)
          at[n++] = static_cast<u32>(raw_->call_params[i]);
      }
      d.ins.imm = static_cast<s64>(at[0]) | static_cast<s64>(at[1]) << 32;
      prints_.push_back(drafts_.size() - 1);
      return;
    }
    call_site site;
    if (o.kind == ptx_operand::symbol) {
      auto const at = f_.module->functions.find(o.name);
      if (at == f_.module->functions.end() || !at->second->has_body) {
        problem_ = "call of " + o.name + ", which has no body";
        return;
      }
      site.callee = at->second.get();
      if (site.callee->decoding) {
        recursive_ = true;
      } else {
        decode(*site.callee);
      }
    }
    // Formals lie in the order of declaration: results, then parameters.
    u64 at = 0;
    std::size_t result = 0, param = 0;
    for (std::size_t i = 0; i < raw_->call_params.size(); i += 3) {
      u32 const from = static_cast<u32>(raw_->call_params[i]),
                size = static_cast<u32>(raw_->call_params[i + 1]);
      bool const is_result = raw_->call_params[i + 2] != 0;
      u64 offset = 0;
      if (site.callee != nullptr) {
        auto const& list = is_result ? site.callee->results : site.callee->params;
        std::size_t& k = is_result ? result : param;
        if (k >= list.size() || list[k].size != size) {
          problem_ = "a call with other parameters than " + o.name;
          return;
        }
        offset = list[k++].offset;
      } else {
        u64 const align = std::min<u64>(std::bit_floor(size), 16);
        at = (at + align - 1) / align * align;
        offset = at;
        at += size;
        problem_ = "indirect call";
      }
      (is_result ? site.results : site.arguments).push_back({from, static_cast<u32>(offset), size});
    }
    if (site.callee != nullptr) {
      draft& d = emit(op_CALL, 0, 0);
      d.ins.imm = static_cast<s64>(f_.calls.size());
    } else {
      draft& d = emit(op_CALL_INDIRECT, 0, A);
      d.ins.a = static_cast<u32>(o.reg_id);
      d.ins.imm = static_cast<s64>(f_.calls.size());
    }
    f_.calls.push_back(site);
  }

  // ----- places of registers ---------------------------------------------------------------------

  template <class Visit>
  static void fields(draft& d, u8 which, Visit visit) {
    u32* const all[] = {&d.ins.d, &d.ins.a, &d.ins.b, &d.ins.c, &d.ins.e, &d.ins.f};
    for (int i = 0; i < 6; ++i) {
      if (which & (1 << i))
        visit(*all[i]);
    }
  }

  void assign_places() {
    std::size_t const n = drafts_.size();
    // Basic blocks
    std::vector<u8> leader(n + 1);
    leader[0] = 1;
    auto const is_jump = [&](u16 op) {
      return op == op_BRA || op == op_BRA_IF || op == op_BRA_IFNOT || op == op_BRX;
    };
    for (std::size_t i = 0; i < n; ++i) {
      u16 const op = drafts_[i].ins.op;
      if (is_jump(op)) {
        if (op == op_BRX) {
          for (int const t : f_.tables[static_cast<std::size_t>(drafts_[i].ins.imm)])
            leader[static_cast<std::size_t>(t)] = 1;
        } else {
          leader[static_cast<std::size_t>(drafts_[i].ins.imm)] = 1;
        }
        leader[i + 1] = 1;
      } else if (op == op_RET || op == op_EXIT || op == op_TRAP) {
        leader[i + 1] = 1;
      }
    }
    std::vector<std::size_t> begin;
    std::vector<u32> block_of(n + 1);
    for (std::size_t i = 0; i < n; ++i) {
      if (leader[i])
        begin.push_back(i);
      block_of[i] = static_cast<u32>(begin.size() - 1);
    }
    std::size_t const blocks = begin.size();
    begin.push_back(n);
    std::vector<std::vector<u32>> next(blocks);
    for (std::size_t b = 0; b < blocks; ++b) {
      draft const& last = drafts_[begin[b + 1] - 1];
      u16 const op = last.ins.op;
      if (op == op_BRX) {
        for (int const t : f_.tables[static_cast<std::size_t>(last.ins.imm)])
          next[b].push_back(block_of[static_cast<std::size_t>(t)]);
      } else if (op == op_BRA || op == op_BRA_IF || op == op_BRA_IFNOT) {
        if (static_cast<std::size_t>(last.ins.imm) < n)
          next[b].push_back(block_of[static_cast<std::size_t>(last.ins.imm)]);
      }
      if (op != op_BRA && op != op_BRX && op != op_RET && op != op_EXIT && b + 1 < blocks)
        next[b].push_back(static_cast<u32>(b + 1));
    }
    // Live registers, as bits
    std::size_t const words = (regs_ + 63) / 64;
    std::vector<u64> in(blocks * words), use(blocks * words), def(blocks * words),
        out(blocks * words);
    for (std::size_t b = 0; b < blocks; ++b) {
      for (std::size_t i = begin[b]; i < begin[b + 1]; ++i) {
        fields(drafts_[i], drafts_[i].uses, [&](u32 r) {
          if (!(r & constant_bit) && !(def[b * words + r / 64] >> (r % 64) & 1))
            use[b * words + r / 64] |= u64{1} << (r % 64);
        });
        fields(drafts_[i], drafts_[i].defs,
               [&](u32 r) { def[b * words + r / 64] |= u64{1} << (r % 64); });
      }
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t b = blocks; b-- > 0;) {
        for (std::size_t w = 0; w < words; ++w) {
          u64 o = 0;
          for (u32 const s : next[b])
            o |= in[s * words + w];
          u64 const i = use[b * words + w] | (o & ~def[b * words + w]);
          out[b * words + w] = o;
          if (i != in[b * words + w]) {
            in[b * words + w] = i;
            changed = true;
          }
        }
      }
    }
    std::vector<u32> from(regs_, ~0u), to(regs_, 0);
    auto const touch = [&](u32 r, std::size_t at) {
      from[r] = std::min(from[r], static_cast<u32>(at));
      to[r] = std::max(to[r], static_cast<u32>(at));
    };
    for (std::size_t b = 0; b < blocks; ++b) {
      for (std::size_t w = 0; w < words; ++w) {
        for (u64 bits = in [b * words + w]; bits != 0; bits &= bits - 1)
          touch(static_cast<u32>(w * 64 + static_cast<std::size_t>(std::countr_zero(bits))),
                begin[b]);
        for (u64 bits = out[b * words + w]; bits != 0; bits &= bits - 1)
          touch(static_cast<u32>(w * 64 + static_cast<std::size_t>(std::countr_zero(bits))),
                begin[b + 1]);
      }
      for (std::size_t i = begin[b]; i < begin[b + 1]; ++i) {
        fields(drafts_[i], static_cast<u8>(drafts_[i].uses | drafts_[i].defs), [&](u32 r) {
          if (!(r & constant_bit))
            touch(r, i);
        });
      }
    }
    // Linear scan
    std::vector<u32> order;
    for (u32 r = 0; r < regs_; ++r)
      if (from[r] != ~0u)
        order.push_back(r);
    std::sort(order.begin(), order.end(), [&](u32 x, u32 y) { return from[x] < from[y]; });
    std::vector<u32> place(regs_, 0);
    std::vector<std::pair<u32, u32>> active;  // heap of (end, place), the earliest end first
    std::vector<u32> free_places;
    u32 places = 0;
    auto const later = [](auto const& x, auto const& y) { return x.first > y.first; };
    for (u32 const r : order) {
      while (!active.empty() && active.front().first < from[r]) {
        free_places.push_back(active.front().second);
        std::pop_heap(active.begin(), active.end(), later);
        active.pop_back();
      }
      u32 p = 0;
      if (free_places.empty()) {
        p = places++;
      } else {
        p = free_places.back();
        free_places.pop_back();
      }
      place[r] = p;
      active.emplace_back(to[r], p);
      std::push_heap(active.begin(), active.end(), later);
    }
    u32 const constants = static_cast<u32>(f_.constants.size());
    for (draft& d : drafts_) {
      fields(d, static_cast<u8>(d.defs | d.uses), [&](u32& r) {
        r = 8 * (r & constant_bit ? r & ~constant_bit : constants + place[r]);
      });
    }
    f_.area = (8 * (constants + places) + 15) / 16 * 16;
    f_.frame_bytes = f_.area + f_.area_bytes;
  }

  void finish() {
    for (std::size_t const at : frame_)
      drafts_[at].ins.imm += f_.area;
    for (std::size_t const at : prints_) {
      u64 const v = static_cast<u64>(drafts_[at].ins.imm);
      drafts_[at].ins.imm =
          static_cast<s64>(((v & 0xffffffff) + f_.area) | ((v >> 32) + f_.area) << 32);
    }
    for (call_site& site : f_.calls) {
      for (auto* list : {&site.arguments, &site.results}) {
        for (auto& move : *list)
          move.from += f_.area;
      }
    }
    u64 deepest = 0, local = 0;
    for (call_site const& site : f_.calls) {
      if (site.callee != nullptr) {
        deepest = std::max(deepest, site.callee->stack_bytes);
        local = std::max(local, site.callee->local_stack);
      }
    }
    f_.local_bytes = (f_.local_bytes + 15) / 16 * 16;
    f_.stack_bytes = f_.frame_bytes + deepest + (recursive_ || indirect_ ? 1 << 20 : 0);
    f_.local_stack = f_.local_bytes + local + (recursive_ || indirect_ ? 1 << 16 : 0);
    for (draft const& d : drafts_) {
      f_.code.push_back(d.ins);
      f_.sources.emplace_back(d.file, d.line);
    }
  }

  ptx_function& f_;
  raw_instruction const* raw_ = nullptr;
  std::vector<draft> drafts_;
  std::size_t first_ = 0;
  u32 regs_ = 0;
  std::unordered_map<u64, u32> constant_ids_;
  std::vector<std::pair<std::size_t, std::string>> jumps_;
  std::vector<std::vector<std::string>> tables_;
  std::vector<std::size_t> frame_, prints_;
  std::string problem_;
  bool dynamic_shared_ = false, indirect_ = false, recursive_ = false;
};

/// Estimates how many instructions ptxas makes of an operation: divisions have no instruction.
u32 weight_of(u16 op) {
  switch (op) {
    case op_DIV_u64:
    case op_DIV_s64:
    case op_REM_u64:
    case op_REM_s64:
      return 70;
    case op_DIV_u16:
    case op_DIV_s16:
    case op_DIV_u32:
    case op_DIV_s32:
    case op_REM_u16:
    case op_REM_s16:
    case op_REM_u32:
    case op_REM_s32:
    case op_FDIV_f64:
    case op_FSQRT_f64:
      return 16;
    case op_FDIV_f32:
    case op_FSQRT_f32:
      return 8;
    default:
      return 1;
  }
}

}  // namespace

void decode(ptx_function& f) {
  if (f.decoded || f.decoding)
    return;
  f.decoding = true;
  decoder(f).run();
  f.decoding = false;
  f.decoded = true;
  if (settings.costs != 0) {
    f.cells.resize(f.code.size());
    for (std::size_t k = 0; k < f.code.size(); ++k)
      f.cells[k].weight = weight_of(f.code[k].op);
  }
}

int static_shared(ptx_function const& f) {
  return static_cast<int>(f.module->shared_bytes + f.shared_bytes);
}

}  // namespace emu
