// SPDX-License-Identifier: Apache-2.0
// rank_graph    prints docs/images/rank_graph.svg: which ranks hold copies of the same experts,
//               under EPLB's plan of a layer and under that of flow_placement
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numbers>
#include <string>
#include <vector>

#include <plimsoll/execution.hpp>
#include <plimsoll/flow_placement.hpp>
#include <plimsoll/load_tensor.hpp>
#include <plimsoll/systems/eplb.hpp>

#define PLIMSOLL_BENCH_INPUTS_ONLY
#include "../../../bench/inputs.hpp"

namespace {

using plimsoll::index_t;

constexpr int ranks = 16;
constexpr index_t experts = 64;
constexpr index_t slots = 80;
constexpr index_t steps = 8;

/// Pairs of ranks that hold copies of the same expert.
struct graph {
  std::array<std::array<bool, ranks>, ranks> links = {};

  template <class Placement>
  explicit graph(Placement const& plan) {
    std::vector<std::int32_t> const map = plan.physical_to_logical.to_host();
    for (std::size_t a = 0; a < map.size(); ++a) {
      for (std::size_t b = 0; b < map.size(); ++b) {
        std::size_t const first = a * ranks / map.size();
        std::size_t const second = b * ranks / map.size();
        links[first][second] = links[first][second] || (map[a] == map[b] && first != second);
      }
    }
  }
  [[nodiscard]] int pairs() const {
    int result = 0;
    for (std::size_t a = 0; a < ranks; ++a) {
      for (std::size_t b = 0; b < a; ++b) {
        result += links[a][b] ? 1 : 0;
      }
    }
    return result;
  }
  [[nodiscard]] int components() const {
    std::array<std::size_t, ranks> of{};
    int result = ranks;
    for (std::size_t r = 0; r < ranks; ++r) {
      of[r] = r;
    }
    for (std::size_t a = 0; a < ranks; ++a) {
      for (std::size_t b = 0; b < ranks; ++b) {
        if (links[a][b] && of[a] != of[b]) {
          std::size_t const old = of[b];
          for (std::size_t& one : of) {
            one = one == old ? of[a] : one;
          }
          --result;
        }
      }
    }
    return result;
  }
};

void draw(graph const& of, double center, char const* name) {
  constexpr double middle = 225;
  constexpr double radius = 130;
  auto const x = [&](std::size_t r) {
    return center + radius * std::sin(2 * std::numbers::pi * static_cast<double>(r) / ranks);
  };
  auto const y = [&](std::size_t r) {
    return middle - radius * std::cos(2 * std::numbers::pi * static_cast<double>(r) / ranks);
  };
  int const components = of.components();
  std::printf("<text class=\"h\" x=\"%.0f\" y=\"32\">%s</text>\n", center, name);
  std::printf("<text x=\"%.0f\" y=\"54\">%d pairs of partners, %d separate part%s</text>\n", center,
              of.pairs(), components, components == 1 ? "" : "s");
  for (std::size_t a = 0; a < ranks; ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (of.links[a][b]) {
        std::printf("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", x(a), y(a), x(b),
                    y(b));
      }
    }
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    std::printf("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"13\"/>", x(r), y(r));
    std::printf("<text class=\"r\" x=\"%.1f\" y=\"%.1f\">%zu</text>\n", x(r), y(r) + 4, r);
  }
}

}  // namespace

int main() {
  auto const tokens = plimsoll_bench::drifting_loads(steps, 1, experts);
  plimsoll::array const history(plimsoll::seq, tokens, steps, 1, experts);
  auto sums = plimsoll::zeros<std::int64_t>(plimsoll::seq, 1, experts);
  plimsoll::sum_steps(plimsoll::seq, history, sums);

  std::printf(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"380\" viewBox=\"0 0 760 "
      "380\" "
      "role=\"img\" aria-label=\"Partners of 16 ranks under two plans\">\n"
      "<style>\n"
      ":root{color-scheme:light dark;--bg:#fff;--ink:#1b2126;--soft:#56616b;--link:#0b7a70;"
      "--rank:#cfe2f1}\n"
      "@media screen and (prefers-color-scheme:dark){:root{--bg:#13171a;--ink:#e7ebee;"
      "--soft:#9ba7b1;--link:#2fc4b2;--rank:#2f6ca6}}\n"
      "text{font:13px system-ui,sans-serif;fill:var(--soft);text-anchor:middle}\n"
      ".h{font-size:17px;font-weight:600;fill:var(--ink)}.r{font-size:12px;fill:var(--ink)}\n"
      "line{stroke:var(--link);stroke-width:1.6}circle{fill:var(--rank)}\n"
      "</style>\n"
      "<rect width=\"760\" height=\"380\" rx=\"8\" style=\"fill:var(--bg)\"/>\n");
  draw(graph(plimsoll::eplb(plimsoll::seq, sums, slots, {.on = {.ranks = ranks}})), 195, "EPLB");
  draw(graph(plimsoll::place_by_flow(plimsoll::seq, history, slots, {.on = {.ranks = ranks}})), 565,
       "flow_placement");
  std::printf("</svg>\n");
}
