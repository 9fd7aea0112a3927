#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# options.sh TABLES: tests options, on a header with every form of member.
set -euo pipefail
tables=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "options.sh: $1"; exit 1; }

mkdir -p docs/tables include/plimsoll
cp "$tables/options" docs/tables
cat >include/plimsoll/x_types.hpp <<'END'
#pragma once
namespace plimsoll {

struct x_options;
enum class color { red, green };

/// Options with a longer name.
struct x_options_of {
  int other = 0;
};

/// Options of x.
template <class Cost, class Id = int>
struct x_options {
  /// Comment before, in one line.
  int before = 1;
  /// Comment before, in two lines:
  /// `[a, b]`, a | b.
  ///
  /// After a blank line.
  matrix_ref<std::int32_t const> arrays = {};
  int behind = 2;  ///< Behind.
  int continued = 3;  ///< Behind, and
                      ///< continued.
  /// After a continued comment.
  std::int64_t max_things =
      std::numeric_limits<std::int64_t>::max();
  std::int64_t two_lines_behind =
      7;  ///< Declared over two lines.

  color shade = color::red;  ///< Without the name of the type.
  int called = static_cast<int>(limit);  ///< Not a function.
  lp_options lp = {.tolerance = 0};  ///< Designated.
  lp_options lines = {
      .tolerance = 1,
  };  ///< Designated, over lines.
  Cost cost;  ///< No default.
  /// Before an ordinary one.
  double double2 = 1e-6;  // ordinary
  int bare = 4;  ///< Bare.
  // An ordinary comment is no declaration.
  int after_ordinary = 5;  ///< After an ordinary comment.

  /// Returns a number, in one line.
  [[nodiscard]] PLIMSOLL_HD constexpr double gap() const { return value == 0 ? 0.0 : 1; }
  int after_short_function = 6;  ///< After a short function.
  /// Returns a number.
  double long_function() const {
    double half = 0.5;  ///< not a member
    return half;
  }
  int after_long_function = 7;  ///< After a long function.
  template <class T>
  int declared(T const&,
               int) const;
  x_options(x_options const&& other) = delete;
  friend bool operator==(x_options const&, x_options const&) = default;
  using value_type = int;
  static constexpr int rank = 2;
  /// The last one.
  Id last = 8;
};

struct undocumented {
  int one = 0;  ///< Documented.
  int two = 0;
  int three = 0;  // ordinary
};

struct no_members {
  int size() const;
};

/// Results of x.
struct x_report {
  std::int64_t kept = 0;  ///< Kept ids. They count once.
  double part = 0;        ///< Last, behind and
                          ///< continued.
};

}  // namespace plimsoll
END

cat >expected <<'END'
| option | type | default | meaning |
|---|---|---|---|
| `before` | `int` | `1` | Comment before, in one line |
| `arrays` | `matrix_ref<std::int32_t const>` |  | Comment before, in two lines: `[a, b]`, a \| b. After a blank line |
| `behind` | `int` | `2` | Behind |
| `continued` | `int` | `3` | Behind, and continued |
| `max_things` | `std::int64_t` | `std::numeric_limits<std::int64_t>::max()` | After a continued comment |
| `two_lines_behind` | `std::int64_t` | `7` | Declared over two lines |
| `shade` | `color` | `red` | Without the name of the type |
| `called` | `int` | `static_cast<int>(limit)` | Not a function |
| `lp` | `lp_options` | `{.tolerance = 0}` | Designated |
| `lines` | `lp_options` | `{ .tolerance = 1, }` | Designated, over lines |
| `cost` | `Cost` |  | No default |
| `double2` | `double` | `1e-6` | Before an ordinary one |
| `bare` | `int` | `4` | Bare |
| `after_ordinary` | `int` | `5` | After an ordinary comment |
| `after_short_function` | `int` | `6` | After a short function |
| `after_long_function` | `int` | `7` | After a long function |
| `last` | `Id` | `8` | The last one |
END
docs/tables/options x_types.hpp x_options | diff -u expected - || fail "x_options"

# Other structs have members, not options.
cat >expected <<'END'
| member | type | default | meaning |
|---|---|---|---|
| `kept` | `std::int64_t` | `0` | Kept ids. They count once |
| `part` | `double` | `0` | Last, behind and continued |
END
docs/tables/options x_types.hpp x_report | diff -u expected - || fail "x_report"

for struct in absent x color no_members; do
  ! docs/tables/options x_types.hpp "$struct" >out 2>err || fail "$struct passed"
  [[ ! -s out ]] || fail "$struct has a table: $(cat out)"
  grep -qxF "options: no struct $struct with members" err || fail "$struct: $(cat err)"
done
! docs/tables/options absent.hpp x_options >out 2>err || fail "a header that does not exist passed"
grep -qxF 'options: no header absent.hpp' err || fail "$(cat err)"
! docs/tables/options x_types.hpp undocumented >out 2>err || fail "members without a comment passed"
grep -qxF 'options: no comment for these members of undocumented: two three' err || fail "$(cat err)"
