// SPDX-License-Identifier: Apache-2.0
// move_curve PAGE    prints docs/images/migration.svg: balancedness over moves, from the tables of
// moves
//                    and move_budgets on PAGE
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include "../traces.hpp"

namespace {

using row = std::vector<std::string>;

/// Returns the cells of all rows of a table for 64 ranks.
std::vector<row> cells_of(std::string const& page, std::string const& program) {
  std::vector<row> result;
  for (std::string const& line : examples::rows_of_table(page, program)) {
    row& cells = result.emplace_back();
    std::size_t begin = 2;
    for (std::size_t end = line.find(" | ", begin); end != std::string::npos;
         end = line.find(" | ", begin)) {
      cells.push_back(line.substr(begin, end - begin));
      begin = end + 3;
    }
    cells.push_back(line.substr(begin, line.size() - begin - 2));
    if (cells[0] != "64 + 64") {
      result.pop_back();
    }
  }
  return result;
}
double number(std::string const& cell) { return std::atof(cell.c_str()); }

constexpr double left = 72;
constexpr double right = 824;
constexpr double top = 96;
constexpr double bottom = 376;
constexpr double lowest = 0.4;

double x_of(double percent) { return left + (right - left) * percent / 100; }
double y_of(double balancedness) {
  return bottom - (bottom - top) * (balancedness - lowest) / (1 - lowest);
}

void draw_axes() {
  for (int tenth = 4; tenth <= 10; ++tenth) {
    double const y = y_of(tenth / 10.0);
    std::printf("<line class=\"g\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/>", left, right,
                y, y);
    std::printf("<text class=\"e\" x=\"%.0f\" y=\"%.1f\">%.1f</text>\n", left - 8, y + 4,
                tenth / 10.0);
  }
  for (int percent = 0; percent <= 100; percent += 20) {
    std::printf("<text class=\"n\" x=\"%.1f\" y=\"%.0f\">%d %%</text>\n", x_of(percent),
                bottom + 20, percent);
  }
  std::printf(
      "<text class=\"n\" x=\"%.0f\" y=\"%.0f\">slots whose expert arrives from another "
      "rank</text>\n",
      (left + right) / 2, bottom + 42);
}

void draw_line(std::vector<row> const& budgets, std::string const& split, char const* style) {
  std::printf("<path class=\"%s\" d=\"", style);
  char command = 'M';
  for (row const& one : budgets) {
    if (one[1] == split) {
      std::printf("%c%.1f %.1f", command, x_of(number(one[4])), y_of(number(one[5])));
      command = 'L';
    }
  }
  std::printf("\"/>\n");
  for (row const& one : budgets) {
    if (one[1] == split) {
      std::printf("<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>\n", style,
                  x_of(number(one[4])), y_of(number(one[5])));
    }
  }
}

/// A plan, drawn as a diamond with its name at some distance.
struct mark {
  char const* plan;  ///< on the page
  char const* name;  ///< in the picture
  char const* style;
  char const* anchor;
  double dx;
  double dy;
};

constexpr mark marks[] = {
    {"EPLB, changed slots", "EPLB", "p", "e", 0, 26},
    {"EPLB, `align`", "EPLB, aligned", "p", "n", 0, 26},
    {"`refine` *", "refine", "q", "n", 0, -14},
    {"`refine`, `align` *", "refine, aligned", "q", "n", 0, -14},
    {"`refine`, `move_price` 0.002 *", "refine, move_price 0.002", "q", "", 4, 26},
    {"`refine`, `move_price` 0.01 *", "refine, move_price 0.01", "q", "", 8, 46},
};

void draw_marks(std::vector<row> const& plans) {
  for (mark const& one : marks) {
    row const* found = nullptr;
    for (row const& plan : plans) {
      found = plan[1] == one.plan ? &plan : found;
    }
    if (found == nullptr) {
      throw std::runtime_error(std::string("no row of ") + one.plan);
    }
    double const x = x_of(number((*found)[2]));
    double const y = y_of(number((*found)[5]));
    std::printf("<path class=\"%s\" d=\"M%.1f %.1fl6 6l-6 6l-6 -6z\"/>", one.style, x, y - 6);
    if (one.dy > 30) {
      std::printf("<line class=\"l\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>", x, x,
                  y + 8, y + one.dy - 2);
    }
    std::printf("<text class=\"i %s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", one.anchor, x + one.dx,
                y + one.dy, one.name);
  }
}

/// Says how much of the gain remains with a tenth of the moves.
void draw_tenth(std::vector<row> const& budgets) {
  std::string even;
  std::string optimal;
  double x = 0;
  double y = bottom;
  for (row const& one : budgets) {
    if (one[2] == "10") {
      (one[1] == "even" ? even : optimal) = one[6];
      x = x_of(number(one[4]));
      y = std::min(y, y_of(number(one[5])));
    }
  }
  std::printf("<line class=\"m\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", x, x, y,
              bottom);
  std::printf(
      "<text class=\"i\" x=\"%.1f\" y=\"%.1f\">a tenth of the moves of EPLB, "
      "aligned:</text>\n",
      x + 10, y_of(0.5) - 9);
  std::printf(
      "<text class=\"i\" x=\"%.1f\" y=\"%.1f\">%s %% of its gain with the even split, %s "
      "%% with the optimal one</text>\n",
      x + 10, y_of(0.5) + 9, even.c_str(), optimal.c_str());
}

void draw_legend() {
  constexpr double x = 500;
  double const y = y_of(0.74);
  struct entry {
    char const* style;
    char const* text;
  };
  constexpr entry entries[] = {{"o", "plan_within, optimal split"},
                               {"v", "plan_within, even split"}};
  double at = y;
  for (entry const& one : entries) {
    std::printf(
        "<path class=\"%s\" d=\"M%.0f %.1fh28\"/><circle class=\"%s\" cx=\"%.0f\" "
        "cy=\"%.1f\" r=\"3.5\"/><text class=\"i\" x=\"%.0f\" y=\"%.1f\">%s</text>\n",
        one.style, x, at, one.style, x + 14, at, x + 40, at + 4, one.text);
    at += 24;
  }
  std::printf(
      "<path class=\"q\" d=\"M%.0f %.1fl6 6l-6 6l-6 -6z\"/><path class=\"p\" d=\"M%.0f "
      "%.1fl6 6l-6 6l-6 -6z\"/><text class=\"i\" x=\"%.0f\" y=\"%.1f\">other plans, even "
      "split</text>\n",
      x + 6, at - 6, x + 22, at - 6, x + 40, at + 4);
}

void draw(std::string const& page) {
  std::vector<row> const plans = cells_of(page, "moves");
  std::vector<row> const budgets = cells_of(page, "move_budgets");
  std::printf(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"440\" viewBox=\"0 0 860 "
      "440\" role=\"img\" aria-label=\"Balancedness over moves of several plans on 64 ranks\">\n"
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
      "<text class=\"h\" x=\"24\" y=\"36\">balancedness after the workload has changed</text>\n"
      "<text x=\"24\" y=\"57\">GLM-5.2, 64 ranks, 64 extra slots, from each of ten domains to the "
      "next</text>\n");
  draw_axes();
  draw_tenth(budgets);
  draw_line(budgets, "even", "v");
  draw_line(budgets, "optimal", "o");
  draw_marks(plans);
  draw_legend();
  std::printf("</svg>\n");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: move_curve PAGE\n";
    return 2;
  }
  try {
    draw(argv[1]);
  } catch (std::exception const& error) {
    std::cerr << "move_curve: " << error.what() << '\n';
    return 2;
  }
}
