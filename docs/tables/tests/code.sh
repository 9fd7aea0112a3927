#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# code.sh TABLES: tests code, on small pages in a tree of its own.
set -euo pipefail
tables=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() { echo "code.sh: $1"; exit 1; }

# A tree with the two tools, a program with two regions, its output, and a header.
mkdir -p docs/tables examples include/plimsoll
cp "$tables/code" "$tables/options" docs/tables
cat >examples/x.cpp <<'END'
// SPDX-License-Identifier: Apache-2.0
// Two regions.
int main() {
  // [first]
  if (true) {
    int a = 1;

  }
  // [end]
  // [second]
  int b = 2;
  // [end]
}
END
echo 'a is 1' >examples/x.expected
cat >include/plimsoll/x_types.hpp <<'END'
struct x_options {
  /// The number.
  int number = 1;
};
END

# The page as it should be.
cat >good.md <<'END'
# x

<!-- code: examples/x.cpp -->
```cpp
// Two regions.
int main() {
  if (true) {
    int a = 1;

  }
  int b = 2;
}
```

<!-- code: examples/x.cpp first -->

```cpp
if (true) {
  int a = 1;

}
```

<!-- output: examples/x.expected -->
```
a is 1
```

A block without a language holds anything:

```
<!-- code: examples/absent.cpp -->
```

<!-- options: x_types.hpp x_options -->
| option | type | default | meaning |
|---|---|---|---|
| `number` | `int` | `1` | The number |
<!-- end of options -->

The end.
END

passes() { docs/tables/code "$@" >out 2>&1 || fail "'$*' failed: $(cat out)"; }
refuses() { # MESSAGE, on stdin a change of good.md for sed
  sed -E -f - good.md >page.md
  ! cmp -s good.md page.md || fail "no change for '$1'"
  ! docs/tables/code --check page.md >out 2>&1 || fail "--check passed, expected '$1'"
  grep -qF -- "$1" out || fail "expected '$1' in: $(cat out)"
}
# A page that --update cannot mend stays as it is.
cannot_be_mended() { # MESSAGE
  refuses "$1"
  cp page.md before.md
  ! docs/tables/code --update page.md >out 2>&1 || fail "--update passed, expected '$1'"
  cmp -s before.md page.md || fail "--update wrote a page with an error: $1"
}
mended() {
  passes --update page.md
  diff -u good.md page.md || fail "--update wrote something else"
}

passes --check good.md
cp good.md page.md
mended

# Text that differs is found and mended: a line changed, lost or added, an output, an option.
refuses '-  int b = 3;' <<<'s/int b = 2/int b = 3/'
mended
refuses '+    int a = 1;' <<<'0,/int a = 1/{/int a = 1/d}'
mended
refuses '-// more' <<<'s/^\/\/ Two regions.$/&\n\/\/ more/'
mended
refuses '+a is 1' <<<'s/^a is 1/a is 2/'
mended
refuses '+| `number` | `int` | `1` | The number |' <<<'s/`1`/`2`/'
mended
refuses 'page.md differs from the files that it quotes' <<<'/^\| /d'
mended

# Files, regions and structs that do not exist.
cannot_be_mended 'page.md:4: no text of examples/absent.cpp' <<<'3s/x.cpp/absent.cpp/'
cannot_be_mended 'no text of examples/x.cpp, region third' <<<'s/x.cpp first/x.cpp third/'
cannot_be_mended 'no text of examples/x.cpp, region end' <<<'s/x.cpp first/x.cpp end/'
cannot_be_mended 'no table of y_options' <<<'s/x_types.hpp x_options/x_types.hpp y_options/'
cannot_be_mended 'no table of x_options' <<<'s/x_types.hpp/absent.hpp/'
sed '/\[second\]/,$s/.*\[end\]//' examples/x.cpp >examples/open.cpp
cannot_be_mended 'no // [end] after region second of examples/open.cpp' <<<'s/x.cpp first/open.cpp second/'

# Blocks of C++ that no file holds, and lines that belong to no block.
cannot_be_mended 'page.md:16: a C++ block without a line' <<<'/x.cpp first/d'
cannot_be_mended 'page.md:3: a C++ block without a line' <<<'3d;s/```cpp/```c++/'
cannot_be_mended 'page.md:3: an indented C++ block' <<<'2s/$/\n  ```cpp\n  int c;\n  ```/'
cannot_be_mended 'no block after the line of examples/x.cpp' <<<'s/^<!-- code.* first -->$/&\ntext/'
cannot_be_mended 'no block after the line of examples/x.cpp' <<<'$s/$/\n<!-- code: examples\/x.cpp -->/'

# Comments and blocks without an end do not swallow the page.
cannot_be_mended 'no line <!-- end of options -->' <<<'/end of options/d'
cannot_be_mended 'a block that does not end' <<<'$s/$/\n```/'

# Every page is checked.
sed 's/int b = 2/int b = 3/' good.md >page.md
for pages in 'page.md good.md' 'good.md page.md' 'absent.md good.md'; do
  # shellcheck disable=SC2086
  ! docs/tables/code --check $pages >out 2>&1 || fail "a wrong page of '$pages' was not seen"
done
! docs/tables/code good.md >out 2>&1 || fail "a call without a mode passed"
! docs/tables/code --check >out 2>&1 || fail "a call without a page passed"
