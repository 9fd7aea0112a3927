// SPDX-License-Identifier: Apache-2.0
// move_curve PAGE    prints docs/images/migration.svg: balancedness of the next window over moves,
//                    from the table of next_window on PAGE
#include <algorithm>
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

/// The loads that are drawn.
constexpr char const* drawn = "GLM-5.2, ten domains in order";

/// Returns the cells of the rows of the table that are drawn.
std::vector<row> cells_of(std::string const& page) {
  std::vector<row> rows = examples::cells_of_table(page, "next_window");
  std::erase_if(rows, [](row const& cells) { return cells[0] != drawn; });
  return rows;
}
double number(std::string const& cell) { return std::atof(cell.c_str()); }

constexpr double left = 72;
constexpr double right = 824;
constexpr double top = 96;
constexpr double bottom = 376;
constexpr double lowest = 0.55;
constexpr double highest = 0.85;

double x_of(double percent) { return left + (right - left) * percent / 100; }
double y_of(double balancedness) {
  return bottom - (bottom - top) * (balancedness - lowest) / (highest - lowest);
}

void draw_axes() {
  for (int percent = 55; percent <= 85; percent += 5) {
    double const y = y_of(percent / 100.0);
    std::printf("<line class=\"g\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/>", left, right,
                y, y);
    std::printf("<text class=\"e\" x=\"%.0f\" y=\"%.1f\">%.2f</text>\n", left - 8, y + 4,
                percent / 100.0);
  }
  for (int percent = 0; percent <= 100; percent += 20) {
    std::printf("<text class=\"n\" x=\"%.1f\" y=\"%.0f\">%d %%</text>\n", x_of(percent),
                bottom + 20, percent);
  }
  std::printf(
      "<text class=\"n\" x=\"%.0f\" y=\"%.0f\">slots of a window whose expert arrives "
      "from another rank</text>\n",
      (left + right) / 2, bottom + 42);
}

/// Draws the points of the rows whose plan begins with `plan`, from the first row.
void draw_line(std::vector<row> const& rows, std::string const& plan, char const* style) {
  std::string circles;
  std::printf("<path class=\"%s\" d=\"", style);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i == 0 || rows[i][2].starts_with(plan)) {
      double const x = x_of(number(rows[i][3]));
      double const y = y_of(number(rows[i][4]));
      std::printf("%c%.1f %.1f", i == 0 ? 'M' : 'L', x, y);
      char circle[80];
      std::snprintf(circle, sizeof circle,
                    "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>", style, x, y);
      circles += circle;
    }
  }
  std::printf("\"/>\n%s\n", circles.c_str());
}

/// Draws a plan as a diamond with its name below.
void draw_mark(std::vector<row> const& rows, std::string const& plan, char const* name,
               char const* style) {
  for (row const& one : rows) {
    if (one[2] == plan) {
      double const x = x_of(number(one[3]));
      double const y = y_of(number(one[4]));
      std::printf("<path class=\"%s\" d=\"M%.1f %.1fl6 6l-6 6l-6 -6z\"/>", style, x, y - 6);
      std::printf("<text class=\"i n\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", x, y + 22, name);
      return;
    }
  }
  throw std::runtime_error("no row of " + plan);
}

void draw_legend() {
  constexpr double x = 380;
  struct entry {
    char const* style;
    char const* text;
  };
  constexpr entry entries[] = {{"o", "plan_within of the steps, towards flow_placement's plan"},
                               {"v", "plan_within of their sum, towards EPLB's plan"}};
  double at = y_of(0.66);
  for (entry const& one : entries) {
    std::printf(
        "<path class=\"%s\" d=\"M%.0f %.1fh28\"/><circle class=\"%s\" cx=\"%.0f\" "
        "cy=\"%.1f\" r=\"3.5\"/><text class=\"i\" x=\"%.0f\" y=\"%.1f\">%s</text>\n",
        one.style, x, at, one.style, x + 14, at, x + 40, at + 4, one.text);
    at += 24;
  }
  std::printf(
      "<path class=\"q\" d=\"M%.0f %.1fl6 6l-6 6l-6 -6z\"/><path class=\"p\" d=\"M%.0f "
      "%.1fl6 6l-6 6l-6 -6z\"/><text class=\"i\" x=\"%.0f\" y=\"%.1f\">fresh plans, "
      "aligned</text>\n",
      x + 6, at - 6, x + 22, at - 6, x + 40, at + 4);
}

void draw(std::string const& page) {
  std::vector<row> const rows = cells_of(page);
  if (rows.empty()) {
    throw std::runtime_error(std::string("no row of ") + drawn);
  }
  std::printf(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"440\" viewBox=\"0 0 860 "
      "440\" role=\"img\" aria-label=\"Balancedness of the next window over moves\">\n"
      "<style>\n"
      ":root{color-scheme:light dark;--bg:#fff;--ink:#1b2126;--soft:#56616b;--rule:#dde2e6;"
      "--even:#2f78b7;--best:#0b7a70;--other:#dd6b10;--plain:#88929c}\n"
      "@media screen and (prefers-color-scheme:dark){:root{--bg:#13171a;--ink:#e7ebee;"
      "--soft:#9ba7b1;--rule:#2e363c;--even:#6aa8dc;--best:#2fc4b2;--other:#e58c2f;"
      "--plain:#76818c}}\n"
      "text{font:12px system-ui,sans-serif;fill:var(--soft);font-variant-numeric:tabular-nums}\n"
      ".i{fill:var(--ink)}.n{text-anchor:middle}.e{text-anchor:end}"
      ".h{font-size:17px;font-weight:600;fill:var(--ink)}\n"
      "path{stroke-width:2;stroke-linejoin:round}"
      "path.v{fill:none;stroke:var(--even)}path.o{fill:none;stroke:var(--best)}"
      "circle.v{fill:var(--even)}circle.o{fill:var(--best)}"
      "path.q{fill:var(--other)}path.p{fill:var(--plain)}\n"
      ".g{stroke:var(--rule)}.m{stroke:var(--ink);stroke-dasharray:2 3}.l{stroke:var(--soft)}\n"
      "</style>\n"
      "<rect width=\"860\" height=\"440\" rx=\"8\" style=\"fill:var(--bg)\"/>\n"
      "<text class=\"h\" x=\"24\" y=\"36\">balancedness of the next window, where every window "
      "moves the plan</text>\n"
      "<text x=\"24\" y=\"57\">GLM-5.2 through ten domains, 32 ranks, 32 extra slots, optimal "
      "split</text>\n");
  draw_axes();
  draw_line(rows, "EPLB, `plan_within`", "v");
  draw_line(rows, "flow, `plan_within`", "o");
  draw_mark(rows, "EPLB, `align`", "EPLB", "p");
  draw_mark(rows, "`place_by_flow`, `align`", "flow_placement", "q");
  draw_legend();
  std::printf("</svg>\n");
}

}  // namespace

int main(int argc, char** argv) { return examples::run_with_page("move_curve", argc, argv, draw); }
