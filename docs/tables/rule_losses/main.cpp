// SPDX-License-Identifier: Apache-2.0
// rule_losses PAGE    prints docs/images/replanning.svg: time that rules lose, from the table of
//                     replan_rules on PAGE
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "../traces.hpp"

namespace {

using row = std::vector<std::string>;

/// The series that are drawn, by their column; in the others *never* loses nothing.
struct series {
  std::size_t column;
  char const* name;
  char const* style;
};
constexpr series drawn[] = {{2, "GLM-5.2, ten domains", "a"},
                            {3, "GLM-5.2, one domain", "b"},
                            {4, "DeepSeek-V2-Lite", "c"},
                            {5, "gpt-oss-20b", "d"},
                            {8, "W6", "w"}};
/// The rules that are drawn, by the begin of their names.
struct rule {
  char const* begin;
  char const* label;
};
constexpr rule rules[] = {{"never", "never"},
                          {"always", "always"},
                          {"balancedness below 0.8", "SGLang: balancedness below 0.8"},
                          {"layers with a cosine of loads below 0.80", "xLLM: cosine below 0.8"},
                          {"layers 0.05 below what their plan", "STAIR: 0.05 below the promise"},
                          {"gain on the steps planned from", "gain on the steps planned from"},
                          {"`decide_replan`", "replan_gate"}};

double number(std::string const& cell) { return std::atof(cell.c_str()); }

constexpr double left = 240;
constexpr double right = 824;
constexpr double top = 130;
constexpr double step = 36;
constexpr double least = 0.2;
constexpr double most = 5;

double x_of(double ratio) {
  double const part = std::log(ratio / least) / std::log(most / least);
  return left + (right - left) * std::clamp(part, 0.0, 1.0);
}

row const& row_of(std::vector<row> const& rows, std::string const& name) {
  for (row const& one : rows) {
    if (one[0] == "100" && one[1].starts_with(name)) {
      return one;
    }
  }
  throw std::runtime_error("no row of " + name);
}

void draw_axis(double bottom) {
  for (double const ratio : {0.25, 0.5, 1.0, 2.0, 4.0}) {
    std::printf("<line class=\"%s\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.0f\" y2=\"%.0f\"/>",
                ratio == 1 ? "m" : "g", x_of(ratio), x_of(ratio), top - 18, bottom);
    std::printf("<text class=\"n\" x=\"%.1f\" y=\"%.0f\">%g x</text>\n", x_of(ratio), bottom + 20,
                ratio);
  }
}

void draw_rule(std::vector<row> const& rows, rule const& of, double y) {
  row const& never = row_of(rows, "never");
  row const& always = row_of(rows, "always");
  row const& cells = row_of(rows, of.begin);
  std::printf("<line class=\"g\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%.0f\" y2=\"%.0f\"/>", left, right, y,
              y);
  std::printf("<text class=\"i e\" x=\"%.0f\" y=\"%.0f\">%s</text>\n", left - 12, y + 4, of.label);
  for (series const& one : drawn) {
    double const best = std::min(number(never[one.column]), number(always[one.column]));
    std::printf("<circle class=\"%s\" cx=\"%.1f\" cy=\"%.0f\" r=\"5\"/>", one.style,
                x_of(number(cells[one.column]) / best), y);
  }
  std::printf("\n");
}

void draw(std::string const& page) {
  std::vector<row> const rows = examples::cells_of_table(page, "replan_rules");
  double const bottom = top + step * static_cast<double>(std::size(rules)) - step / 2;
  double const height = bottom + 40;
  std::printf(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"%.0f\" viewBox=\"0 0 860 "
      "%.0f\" role=\"img\" aria-label=\"Time that rules lose\">\n"
      "<style>\n"
      ":root{color-scheme:light dark;--bg:#fff;--ink:#1b2126;--soft:#56616b;--rule:#dde2e6;"
      "--a:#0b7a70;--b:#2f78b7;--c:#dd6b10;--d:#8a4fbf;--w:#88929c}\n"
      "@media screen and (prefers-color-scheme:dark){:root{--bg:#13171a;--ink:#e7ebee;"
      "--soft:#9ba7b1;--rule:#2e363c;--a:#2fc4b2;--b:#6aa8dc;--c:#e58c2f;--d:#b98be0;"
      "--w:#76818c}}\n"
      "text{font:12px system-ui,sans-serif;fill:var(--soft);font-variant-numeric:tabular-nums}\n"
      ".i{fill:var(--ink)}.n{text-anchor:middle}.e{text-anchor:end}"
      ".h{font-size:17px;font-weight:600;fill:var(--ink)}\n"
      ".a{fill:var(--a)}.b{fill:var(--b)}.c{fill:var(--c)}.d{fill:var(--d)}.w{fill:var(--w)}\n"
      "circle{fill-opacity:.85}.g{stroke:var(--rule)}.m{stroke:var(--soft)}\n"
      "</style>\n"
      "<rect width=\"860\" height=\"%.0f\" rx=\"8\" style=\"fill:var(--bg)\"/>\n"
      "<text class=\"h\" x=\"24\" y=\"36\">time lost, relative to the better of always and "
      "never</text>\n"
      "<text x=\"24\" y=\"57\">100 steps between decisions</text>\n",
      height, height, height);
  double at = 30;
  for (series const& one : drawn) {
    std::printf("<circle class=\"%s\" cx=\"%.0f\" cy=\"78\" r=\"5\"/>", one.style, at);
    std::printf("<text class=\"i\" x=\"%.0f\" y=\"82\">%s</text>\n", at + 10, one.name);
    at += 40 + 6.6 * static_cast<double>(std::string(one.name).size());
  }
  draw_axis(bottom);
  double y = top;
  for (rule const& one : rules) {
    draw_rule(rows, one, y);
    y += step;
  }
  std::printf("</svg>\n");
}

}  // namespace

int main(int argc, char** argv) { return examples::run_with_page("rule_losses", argc, argv, draw); }
