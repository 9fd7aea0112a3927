#!/usr/bin/env bash
# comments.sh FOLDER...: no comment is broken in the middle of a sentence, as a line that was once too long and
# was wrapped on its own leaves it. clang-format does not reflow comments, so it does not see that. Two signs:
# a line that is indented like a continuation, with the rest of its sentence not indented below; and a short line
# whose sentence goes on below, although the next word has room.
set -euo pipefail
export LC_ALL=C

# Prints file:line: line for the first line of each break. Lists, tables and code keep their lines: they are
# indented by more than 3, or begin with a sign.
broken() {
  find "$@" -type f -print0 | sort -z | xargs -0 awk '
    function is_prose(text) { return text ~ /^[A-Za-z`(\[]/ }
    FNR == 1 { mark = "" }
    {
      was_mark = mark; was_indent = indent; was_text = text; was_line = $0 == "" ? "" : last; last = $0
      if (!match($0, /^ *\/\/\/? +/)) { mark = ""; next }
      text = substr($0, RLENGTH + 1)
      mark = $0; sub(/[^ \/].*$/, "", mark)
      indent = match(mark, / +$/) ? RLENGTH : 0
      sub(/ +$/, "", mark)
      if (mark != was_mark || was_indent > 3 || was_text ~ /[.:;!?|]$/ || was_text ~ /^(SPDX|@[a-z]+$)/) next
      split(text, word, " ")
      if ((was_indent == 3 && indent < 3 && is_prose(was_text) && is_prose(text)) ||
          (indent <= 3 && text ~ /^[a-z`(]/ && length(was_line) + 1 + length(word[1]) <= 75))
        print FILENAME ":" FNR - 1 ": " was_line
    }'
}

# It finds the kind where it is, and nothing in comments as they should be.
sample=$(mktemp -d "${TMPDIR:-/tmp}/plimsoll-comments.XXXXXX")
trap 'rm -rf "$sample"' EXIT
cat >"$sample/bad.hpp" <<'END'
/// @brief Takes other homes of experts, as after a new placement. The object and its memory stay,
///   so
/// that a graph captured before plans with them.
/// cost, or if the counts of its
/// `exchange` do not add up to the planned loads.
  // Experts without load count as equal. With
  // required anti-affinity an expert is skipped once no further copy of it can be placed.
END
cat >"$sample/good.hpp" <<'END'
/// @brief Takes other homes of experts, as after a new placement. The object and its memory stay, as
/// a graph does.
/// @param on liveness and speeds of the ranks; without it they stay. Its nodes are not read, and
///   its speeds are
/// @stream synchronizes
///
///   1. Every expert gets one copy,
///      then more.
///   2. Experts are placed.
///     single(f)     calls f() once
///     broadcast(f)  calls f() once for all
void f();  // one
// two
END
found=$(broken "$sample/bad.hpp" | sed 's/.*bad\.hpp:\([0-9]*\):.*/\1/' | paste -sd' ')
[[ $found == '2 4 6' ]] || { echo "comments.sh finds lines ${found:-none} of its bad sample, not 2, 4 and 6"; exit 1; }
found=$(broken "$sample/good.hpp")
[[ -z $found ]] || { echo "comments.sh finds lines of its good sample:
$found"; exit 1; }

found=$(broken "$@")
[[ -z $found ]] || { echo "comments broken in the middle of a sentence:
$found"; exit 1; }
