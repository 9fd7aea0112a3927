// SPDX-License-Identifier: Apache-2.0
// Parses the text of a PTX module into functions of raw instructions.
#include <cstring>

#include "emulator.hpp"

namespace emu {

int size_of(ptx_type t) {
  switch (t) {
    case ptx_type::pred:
    case ptx_type::b8:
    case ptx_type::u8:
    case ptx_type::s8:
      return 1;
    case ptx_type::b16:
    case ptx_type::u16:
    case ptx_type::s16:
    case ptx_type::f16:
    case ptx_type::bf16:
      return 2;
    case ptx_type::b32:
    case ptx_type::u32:
    case ptx_type::s32:
    case ptx_type::f32:
    case ptx_type::f16x2:
    case ptx_type::bf16x2:
      return 4;
    case ptx_type::b64:
    case ptx_type::u64:
    case ptx_type::s64:
    case ptx_type::f64:
      return 8;
    case ptx_type::b128:
      return 16;
    case ptx_type::none:
      break;
  }
  die("size of no type");
}

ptx_type type_named(std::string_view s) {
  // Not destroyed: work may be left for the exit of the program.
  static auto const& types = *new std::unordered_map<std::string_view, ptx_type>{
      {"pred", ptx_type::pred},   {"b8", ptx_type::b8},        {"b16", ptx_type::b16},
      {"b32", ptx_type::b32},     {"b64", ptx_type::b64},      {"b128", ptx_type::b128},
      {"u8", ptx_type::u8},       {"u16", ptx_type::u16},      {"u32", ptx_type::u32},
      {"u64", ptx_type::u64},     {"s8", ptx_type::s8},        {"s16", ptx_type::s16},
      {"s32", ptx_type::s32},     {"s64", ptx_type::s64},      {"f16", ptx_type::f16},
      {"f32", ptx_type::f32},     {"f64", ptx_type::f64},      {"bf16", ptx_type::bf16},
      {"f16x2", ptx_type::f16x2}, {"bf16x2", ptx_type::bf16x2}};
  auto const found = types.find(s);
  return found == types.end() ? ptx_type::none : found->second;
}

namespace {

struct token {
  enum kind_code : u8 { word, number, text, punctuation, end } kind = end;
  std::string_view s;
  u32 line = 0;
};

std::vector<token> tokenize(std::string_view text) {
  std::vector<token> tokens;
  u32 line = 1;
  std::size_t i = 0;
  auto const is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' ||
           c == '.';
  };
  while (i < text.size()) {
    char const c = text[i];
    if (c == '\n') {
      ++line;
      ++i;
    } else if (std::isspace(static_cast<unsigned char>(c)) || c == '\0') {
      ++i;
    } else if (c == '/' && i + 1 < text.size() && text[i + 1] == '/') {
      while (i < text.size() && text[i] != '\n')
        ++i;
    } else if (c == '/' && i + 1 < text.size() && text[i + 1] == '*') {
      for (i += 2; i + 1 < text.size() && !(text[i] == '*' && text[i + 1] == '/'); ++i)
        line += text[i] == '\n';
      i += 2;
    } else if (c == '"') {
      std::size_t const from = ++i;
      while (i < text.size() && text[i] != '"')
        ++i;
      tokens.push_back({token::text, text.substr(from, i - from), line});
      ++i;
    } else if (std::isdigit(static_cast<unsigned char>(c))) {
      std::size_t const from = i;
      while (i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])))
        ++i;
      // A version has a dot: 9.0
      if (i + 1 < text.size() && text[i] == '.' &&
          std::isdigit(static_cast<unsigned char>(text[i + 1]))) {
        for (++i; std::isdigit(static_cast<unsigned char>(text[i]));)
          ++i;
      }
      tokens.push_back({token::number, text.substr(from, i - from), line});
    } else if (is_word(c)) {
      std::size_t const from = i;
      while (i < text.size()) {
        if (is_word(text[i])) {
          ++i;
        } else if (text[i] == ':' && i + 1 < text.size() && text[i + 1] == ':') {
          i += 2;
        } else {
          break;
        }
      }
      tokens.push_back({token::word, text.substr(from, i - from), line});
    } else {
      tokens.push_back({token::punctuation, text.substr(i, 1), line});
      ++i;
    }
  }
  tokens.push_back({token::end, {}, line});
  return tokens;
}

u64 round_up(u64 n, u64 to) { return (n + to - 1) / to * to; }

class parser {
 public:
  explicit parser(ptx_module& m) : module_(m), tokens_(tokenize(m.text)) {}

  void run() {
    while (peek().kind != token::end) {
      top_level();
    }
  }

 private:
  token const& peek(int ahead = 0) const {
    return tokens_[std::min(at_ + static_cast<std::size_t>(ahead), tokens_.size() - 1)];
  }
  token next() { return tokens_[at_ < tokens_.size() - 1 ? at_++ : at_]; }
  bool is(char const* s, int ahead = 0) const {
    return peek(ahead).kind != token::text && peek(ahead).s == s;
  }
  bool take(char const* s) {
    if (is(s)) {
      ++at_;
      return true;
    }
    return false;
  }
  void need(char const* s) {
    if (!take(s))
      fail(std::string("expected ") + s);
  }
  [[noreturn]] void fail(std::string const& what) const {
    die("PTX line %u: %s, got '%.*s'", peek().line, what.c_str(), static_cast<int>(peek().s.size()),
        peek().s.data());
  }
  void skip_line() {
    u32 const line = peek().line;
    while (peek().kind != token::end && peek().line == line)
      ++at_;
  }
  void skip_braces() {
    need("{");
    for (int depth = 1; depth > 0;) {
      if (peek().kind == token::end)
        fail("expected }");
      token const t = next();
      if (t.kind == token::punctuation)
        depth += t.s == "{" ? 1 : t.s == "}" ? -1 : 0;
    }
  }

  u64 integer() {
    bool const minus = take("-");
    token const t = next();
    if (t.kind != token::number)
      fail("expected an integer");
    std::string s(t.s);
    while (!s.empty() && (s.back() == 'U' || s.back() == 'u'))
      s.pop_back();
    u64 v = 0;
    if (s.size() > 2 && s[0] == '0' && (s[1] == 'b' || s[1] == 'B')) {
      v = std::strtoull(s.c_str() + 2, nullptr, 2);
    } else {
      v = std::strtoull(s.c_str(), nullptr, 0);
    }
    return minus ? 0 - v : v;
  }
  /// Reads a literal: returns whether it is floating (0f..., 0d...), with its bits.
  bool literal(u64& bits, int& width) {
    bool const minus = take("-");
    std::string_view const s = peek().s;
    if (s.size() > 2 && s[0] == '0' && (s[1] == 'f' || s[1] == 'F' || s[1] == 'd' || s[1] == 'D') &&
        peek().kind == token::number) {
      bits = std::strtoull(std::string(s.substr(2)).c_str(), nullptr, 16);
      width = s[1] == 'f' || s[1] == 'F' ? 32 : 64;
      if (minus)
        bits ^= u64{1} << (width - 1);
      next();
      return true;
    }
    bits = integer();
    if (minus)
      bits = 0 - bits;
    width = 0;
    return false;
  }

  void top_level() {
    token const t = peek();
    if (t.s == ".version" || t.s == ".target" || t.s == ".address_size" || t.s == ".loc") {
      skip_line();
    } else if (t.s == ".file") {
      next();
      u32 const index = static_cast<u32>(integer());
      module_.files[index] = std::string(next().s);
      u32 const line = t.line;
      while (peek().line == line && peek().kind != token::end)
        next();
    } else if (t.s == ".section") {
      next();
      next();
      skip_braces();
    } else if (t.s == ";") {
      next();
    } else {
      bool is_extern = false;
      while (is(".visible") || is(".extern") || is(".weak") || is(".common")) {
        is_extern |= is(".extern");
        next();
      }
      if (is(".entry") || is(".func")) {
        function(is_extern);
      } else if (is(".global") || is(".const") || is(".shared")) {
        ptx_variable v = variable(is_extern);
        if (auto const [at, is_new] = module_.variables.emplace(v.name, v);
            !is_new && at->second.is_extern)
          at->second = v;
      } else if (is(".alias") || is(".pragma")) {
        while (!take(";"))
          next();
      } else {
        fail("unknown directive");
      }
    }
  }

  /// Parses `.space [.align n] [.attribute(...)] .type name[n] [= ...] ;`
  ptx_variable variable(bool is_extern) {
    ptx_variable v;
    v.is_extern = is_extern;
    std::string_view const space = next().s;
    v.space = space == ".global"   ? memory_space::global
              : space == ".const"  ? memory_space::constant
              : space == ".shared" ? memory_space::shared
              : space == ".local"  ? memory_space::local
              : space == ".param"  ? memory_space::param
                                   : memory_space::generic;
    if (v.space == memory_space::generic)
      fail("unknown space");
    ptx_type type = ptx_type::none;
    u64 lanes = 1;
    while (peek().kind == token::word && peek().s[0] == '.') {
      if (take(".align")) {
        v.align = integer();
      } else if (take(".attribute")) {
        need("(");
        while (!take(")"))
          next();
      } else if (take(".v2")) {
        lanes = 2;
      } else if (take(".v4")) {
        lanes = 4;
      } else {
        type = type_named(next().s.substr(1));
        if (type == ptx_type::none)
          fail("unknown type of a variable");
      }
    }
    u64 const element = static_cast<u64>(size_of(type));
    v.align = std::max(v.align, element * lanes);
    v.name = std::string(next().s);
    v.size = element * lanes;
    if (take("[")) {
      u64 n = 0;
      if (!is("]"))
        n = integer();
      need("]");
      v.size *= n;
    }
    if (take("=")) {
      std::size_t at = 0;
      initializer(v, element, at);
      if (v.size < v.bytes.size())
        v.size = v.bytes.size();
    }
    need(";");
    return v;
  }
  void initializer(ptx_variable& v, u64 element, std::size_t& at) {
    if (take("{")) {
      while (!take("}")) {
        initializer(v, element, at);
        take(",");
      }
      return;
    }
    if (v.bytes.size() < at + element)
      v.bytes.resize(at + element);
    if (peek().kind == token::word) {
      bool const generic = take("generic");
      // 0xFF(symbol): one byte of an address
      if (generic)
        need("(");
      std::string const name(next().s);
      if (generic)
        need(")");
      u64 addend = 0;
      if (take("+"))
        addend = integer();
      v.references.push_back({at, name, addend, generic});
    } else {
      u64 bits = 0;
      int width = 0;
      literal(bits, width);
      if (is("("))
        fail("bytes of addresses are not supported");
      std::memcpy(v.bytes.data() + at, &bits, element);
    }
    at += element;
  }

  ptx_parameter param() {
    // .param .align 8 .b8 name[48]   or   .param .u64 [.ptr .global .align 4] name
    need(".param");
    ptx_parameter p{};
    p.align = 1;
    ptx_type type = ptx_type::none;
    while (peek().kind == token::word && peek().s[0] == '.') {
      if (take(".align")) {
        p.align = integer();
      } else if (take(".ptr")) {
        if (is(".global") || is(".shared") || is(".const") || is(".local"))
          next();
        if (take(".align"))
          integer();
      } else {
        type = type_named(next().s.substr(1));
        if (type == ptx_type::none)
          fail("unknown type of a parameter");
      }
    }
    p.size = static_cast<u64>(size_of(type));
    p.align = std::max(p.align, p.size);
    if (peek().kind == token::word)
      p.name = std::string(next().s);
    if (take("[")) {
      u64 n = 0;
      if (!is("]"))
        n = integer();
      p.size *= n;
      need("]");
    }
    return p;
  }

  void function(bool) {
    auto f = std::make_unique<ptx_function>();
    f_ = f.get();
    f->module = &module_;
    f->is_entry = next().s == ".entry";
    u64 formals = 0;
    auto const list = [&](std::vector<ptx_parameter>& out) {
      need("(");
      while (!take(")")) {
        ptx_parameter p = param();
        formals = round_up(formals, p.align);
        p.offset = formals;
        formals += p.size;
        out.push_back(p);
        take(",");
      }
    };
    if (is("("))
      list(f->results);
    f->name = std::string(next().s);
    if (f->is_entry)
      formals = 0;
    if (is("("))
      list(f->params);
    f->param_bytes = formals;
    f->formal_bytes = static_cast<u32>(round_up(formals, 16));
    f->area_bytes = f->formal_bytes;
    while (!is("{") && !is(";")) {
      if (take(".maxntid")) {
        f->max_threads = 1;
        do
          f->max_threads *= static_cast<int>(integer());
        while (take(","));
      } else if (take(".minnctapersm") || take(".maxnreg") || take(".maxnctapersm")) {
        integer();
      } else if (take(".noreturn")) {
      } else {
        fail("unknown directive of a function");
      }
    }
    if (take(";")) {
      if (!module_.functions.contains(f->name))
        module_.functions.emplace(f->name, std::move(f));
      return;
    }
    f->has_body = true;
    body();
    std::string const name = f->name;
    module_.functions[name] = std::move(f);
  }

  // ----- bodies ----------------------------------------------------------------------------------

  struct register_scope {
    std::unordered_map<std::string_view, int> regs;
    u32 area;
  };

  void body() {
    scopes_.clear();
    param_area_.clear();
    file_ = source_line_ = 0;
    area_ = f_->formal_bytes;
    need("{");
    scopes_.push_back({{}, area_});
    for (std::size_t depth = 1; depth > 0;) {
      if (take("{")) {
        scopes_.push_back({{}, area_});
        ++depth;
      } else if (take("}")) {
        area_ = scopes_.back().area;
        scopes_.pop_back();
        --depth;
      } else {
        statement();
      }
    }
  }

  int find_reg(std::string_view name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (auto const at = scope->regs.find(name); at != scope->regs.end())
        return at->second;
    }
    return -1;
  }

  void statement() {
    token const t = peek();
    if (t.kind == token::end)
      fail("unexpected end");
    if (take(";"))
      return;
    if (t.s == ".reg") {
      next();
      ptx_type const type = type_named(next().s.substr(1));
      if (type == ptx_type::none)
        fail("unknown type of a register");
      do {
        std::string_view const name = next().s;
        if (take("<")) {
          int const n = static_cast<int>(integer());
          need(">");
          for (int i = 0; i < n; ++i) {
            names_.push_back(std::string(name) + std::to_string(i));
            scopes_.back().regs[names_.back()] = static_cast<int>(f_->regs.size());
            f_->regs.push_back(type);
          }
        } else {
          scopes_.back().regs[name] = static_cast<int>(f_->regs.size());
          f_->regs.push_back(type);
        }
      } while (take(","));
      need(";");
    } else if (t.s == ".local" || t.s == ".shared" || t.s == ".param") {
      ptx_variable v = variable(false);
      if (v.space == memory_space::param) {
        area_ = static_cast<u32>(round_up(area_, std::max<u64>(v.align, 8)));
        param_area_[v.name] = {area_, static_cast<u32>(v.size)};
        area_ += static_cast<u32>(v.size);
        f_->area_bytes = std::max(f_->area_bytes, static_cast<u32>(round_up(area_, 16)));
      } else if (v.space == memory_space::shared && !f_->is_entry) {
        module_.variables[v.name] = v;  // has one place for all kernels that call the function
      } else {
        u64& used = v.space == memory_space::local ? f_->local_bytes : f_->shared_bytes;
        used = round_up(used, v.align);
        v.address = used;
        used += v.size;
        f_->locals[v.name] = v;
      }
    } else if (t.s == ".loc") {
      next();
      file_ = static_cast<u32>(integer());
      source_line_ = static_cast<u32>(integer());
      u32 const line = t.line;
      while (peek().line == line && peek().kind != token::end)
        next();
    } else if (t.s == ".pragma") {
      while (!take(";"))
        next();
    } else if (t.kind == token::word && is(":", 1)) {
      std::string const name(next().s);
      next();
      if (take(".branchtargets")) {
        std::vector<std::string>& targets = f_->branch_targets[name];
        do
          targets.emplace_back(next().s);
        while (take(","));
        need(";");
      } else if (take(".callprototype")) {
        while (!take(";"))
          next();  // of indirect calls
      } else {
        f_->labels[name] = static_cast<int>(f_->raw.size());
      }
    } else {
      instruction();
    }
  }

  ptx_operand operand() {
    ptx_operand o;
    if (take("!")) {
      o = operand();
      o.negated = true;
      return o;
    }
    if (take("{")) {
      o.kind = ptx_operand::vector;
      while (!take("}")) {
        o.parts.push_back(operand());
        take(",");
      }
      return o;
    }
    if (take("[")) {
      o = operand();
      ptx_operand a;
      a.kind = ptx_operand::address;
      if (o.kind == ptx_operand::imm) {
        a.value = o.value;
      } else if (o.kind == ptx_operand::reg) {
        a.reg_id = o.reg_id;
        a.reg_type = o.reg_type;
        a.value = o.value;
      } else if (o.kind == ptx_operand::symbol) {
        a.name = o.name;
        a.value = o.value;
      } else {
        fail("unknown address");
      }
      need("]");
      return a;
    }
    if (peek().kind == token::number || is("-")) {
      o.kind = ptx_operand::imm;
      o.is_float_imm = literal(o.value, o.float_bits);
      return o;
    }
    token const t = next();
    if (t.kind != token::word)
      fail("expected an operand");
    if (t.s == "_") {
      o.kind = ptx_operand::sink;
    } else if (int const reg = find_reg(t.s); reg >= 0) {
      o.kind = ptx_operand::reg;
      o.reg_id = reg;
      o.reg_type = f_->regs[static_cast<std::size_t>(reg)];
    } else if (t.s[0] == '%' || t.s == "WARP_SZ") {
      o.kind = ptx_operand::special;
      o.name = std::string(t.s);
    } else {
      o.kind = ptx_operand::symbol;
      o.name = std::string(t.s);
    }
    if (take("+")) {
      o.value = integer();
    } else if (is("-") && (o.kind == ptx_operand::symbol || o.kind == ptx_operand::reg) &&
               peek(1).kind == token::number) {
      o.value = integer();
    }
    if (take("|"))
      o.parts.push_back(operand());
    return o;
  }

  void instruction() {
    raw_instruction r;
    if (take("@")) {
      r.guard_negated = take("!");
      r.guard = find_reg(next().s);
      if (r.guard < 0)
        fail("unknown guard");
    }
    token const t = next();
    r.line = t.line;
    r.file = file_;
    r.source_line = source_line_;
    for (std::size_t from = 0; from <= t.s.size();) {
      std::size_t const to = std::min(t.s.find('.', from), t.s.size());
      r.op.emplace_back(t.s.substr(from, to - from));
      from = to + 1;
    }
    if (r.op[0] == "call") {
      call(r);
    } else {
      while (!take(";")) {
        r.operands.push_back(operand());
        take(",");
      }
      // Places of .param variables are fixed here, since their names are reused.
      for (ptx_operand& o : r.operands) {
        if (o.kind == ptx_operand::address && !o.name.empty()) {
          if (auto const at = param_area_.find(o.name); at != param_area_.end()) {
            o.name = "@frame";
            o.value += at->second.first;
          }
        }
      }
    }
    f_->raw.push_back(std::move(r));
  }

  void call(raw_instruction& r) {
    auto const place = [&](std::string_view name, bool is_result) {
      auto const at = param_area_.find(std::string(name));
      if (at == param_area_.end())
        fail("a call with something that is no .param variable");
      r.call_params.push_back(static_cast<int>(at->second.first));
      r.call_params.push_back(static_cast<int>(at->second.second));
      r.call_params.push_back(is_result);
    };
    if (take("(")) {
      while (!take(")")) {
        place(next().s, true);
        take(",");
      }
      need(",");
    }
    token const callee = next();
    ptx_operand o;
    if (int const reg = find_reg(callee.s); reg >= 0) {
      o.kind = ptx_operand::reg;
      o.reg_id = reg;
      o.reg_type = ptx_type::b64;
    } else {
      o.kind = ptx_operand::symbol;
      o.name = std::string(callee.s);
    }
    r.operands.push_back(o);
    if (take(",")) {
      if (take("(")) {
        while (!take(")")) {
          place(next().s, false);
          take(",");
        }
        if (take(","))
          next();  // prototype
      } else {
        next();
      }
    }
    need(";");
  }

  ptx_module& module_;
  std::vector<token> tokens_;
  std::size_t at_ = 0;
  ptx_function* f_ = nullptr;
  std::vector<register_scope> scopes_;
  std::deque<std::string> names_;
  std::unordered_map<std::string, std::pair<u32, u32>> param_area_;
  u32 area_ = 0, file_ = 0, source_line_ = 0;
};

}  // namespace

std::unique_ptr<ptx_module> parse_ptx(std::string text) {
  auto module = std::make_unique<ptx_module>();
  module->text = std::move(text);
  std::string_view const all = module->text;
  for (std::size_t from = 0; from < all.size();) {
    std::size_t const to = std::min(all.find('\n', from), all.size());
    module->lines.push_back(all.substr(from, to - from));
    from = to + 1;
  }
  parser(*module).run();
  return module;
}

}  // namespace emu
