#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# browse.sh REPORT.html RESULT.json CHECK_REPORT [FOLDER]
# Opens a report in Chromium, wide and narrow, light and dark, and lets CHECK_REPORT compare the drawn
# page with the results. Screenshots stay in FOLDER.
set -euo pipefail
report=$(realpath "$1") result=$(realpath "$2") check=$(realpath "$3")
measure=$(dirname "$(realpath "$0")")/measure.js
browser=$(command -v chromium || true)
if [[ -z $browser ]]; then
  echo "skipped: no chromium"
  exit 0
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
pictures=$folder
if (($# > 3)); then
  pictures=$(realpath "$4")
fi
cd "$folder"

fail() { echo "browse.sh: $1" >&2; exit 1; }

# open_page FILE WIDTHxHEIGHT light|dark OPTION...: runs Chromium
open_page() {
  local file=$1 size=$2 scheme=1
  [[ $3 == light ]] || scheme=0
  timeout 60 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars \
    --user-data-dir="$folder/profile" --enable-logging=stderr --window-size="${size/x/,}" \
    --blink-settings=preferredColorScheme=$scheme "${@:4}" "file://$folder/$file" 2>log ||
    fail "chromium ended with $?: $(tail -n 5 log)"
  ! grep CONSOLE log >&2 || fail "expected no message of the page"
}

# As XML the page must be strictly well-formed, which HTML does not require.
cp "$report" page.xhtml
open_page page.xhtml 1280x900 light --dump-dom >dom
grep -q '<body' dom && ! grep -q parsererror dom || fail "expected a page that is well-formed XML"

# This policy makes the browser refuse, and report, anything that the page loads from elsewhere.
policy="default-src 'none'; style-src 'unsafe-inline'; script-src 'nonce-measure'"
sed "s|<head>|&<meta http-equiv=\"Content-Security-Policy\" content=\"$policy\"/>|" "$report" >page.html
grep -q Content-Security-Policy page.html || fail "expected a page with a head"
awk -v script="$measure" '
  /<\/body>/ {
    print "<script nonce=\"measure\">"
    while ((getline line < script) > 0) print line
    print "</script>"
  }
  { print }' page.html >measuring.html
for view in 1280,light 1280,dark 400,light; do
  width=${view%,*} scheme=${view#*,}
  # A frame can be narrower than the smallest window.
  echo "<!DOCTYPE html><meta name='color-scheme' content='light dark'><body>
<iframe src='measuring.html' width='$width' height='900' style='border:0'></iframe>" >frame.html
  open_page frame.html 1400x1000 "$scheme" --allow-file-access-from-files --dump-dom >dom
  sed -n 's|.*<pre id="measured">\(.*\)</pre>.*|\1|p' dom >measured.json
  [[ -s measured.json ]] || fail "expected measurements in the page"
  "$check" "$report" "$result" measured.json "$width" "$scheme"
  open_page page.html "${width}x2400" "$scheme" --screenshot="$pictures/$width-$scheme.png"
  [[ -s $pictures/$width-$scheme.png ]] || fail "expected a screenshot"
done
