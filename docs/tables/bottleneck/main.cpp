// SPDX-License-Identifier: Apache-2.0
// bottleneck    prints docs/images/minmax_lp.svg: the step of examples/minmax_lp.cpp as a graph of
// experts
//               and ranks, with its optimal split and the ranks that prove the bound
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <vector>

#include <plimsoll/array.hpp>
#include <plimsoll/minmax_lp.hpp>
#include <plimsoll/systems/eplb.hpp>

namespace {

constexpr std::size_t experts = 8;
constexpr std::size_t ranks = 4;
constexpr std::size_t slots = 12;

constexpr int expert_x = 190;
constexpr int rank_x = 570;
constexpr int rank_y(std::size_t rank) { return 100 + 90 * static_cast<int>(rank); }
constexpr int expert_y(std::size_t place) { return 72 + 47 * static_cast<int>(place); }

std::size_t rank_of(std::size_t slot) { return slot * ranks / slots; }

/// Places of the experts from top to bottom, so that few edges cross: by the mean of their ranks.
std::array<std::size_t, experts> places_of(std::vector<std::int32_t> const& map) {
  std::array<double, experts> sum{};
  std::array<double, experts> copies{};
  for (std::size_t slot = 0; slot < slots; ++slot) {
    auto const expert = static_cast<std::size_t>(map[slot]);
    sum[expert] += static_cast<double>(rank_of(slot));
    copies[expert] += 1;
  }
  std::array<std::size_t, experts> order{};
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return sum[a] * copies[b] < sum[b] * copies[a];
  });
  std::array<std::size_t, experts> places{};
  for (std::size_t place = 0; place < experts; ++place) {
    places[order[place]] = place;
  }
  return places;
}

}  // namespace

int main() {
  int const history[experts] = {900, 300, 250, 200, 140, 110, 60, 40};
  int const tokens[experts] = {700, 340, 380, 150, 90, 160, 110, 70};
  auto const placement = plimsoll::eplb(
      plimsoll::seq, plimsoll::array(plimsoll::seq, history, 1, 8), slots, {.on = {.ranks = 4}});
  plimsoll::array const loads(plimsoll::seq, tokens, 1, 8);
  auto split = plimsoll::zeros<double>(plimsoll::seq, 1, 12);
  auto in_set = plimsoll::zeros<std::uint8_t>(plimsoll::seq, 1, 4);
  plimsoll::minmax_lp lp(plimsoll::seq, placement.ref());
  lp.solve(loads, {}, split, {.bottleneck = in_set.view()});
  lp.check();

  auto const map = placement.physical_to_logical.to_host();
  auto const of_slots = split.to_host();
  auto const bottleneck = in_set.to_host();
  auto const places = places_of(map);
  std::array<bool, experts> confined;
  confined.fill(true);
  std::array<double, ranks> of_rank{};
  for (std::size_t slot = 0; slot < slots; ++slot) {
    of_rank[rank_of(slot)] += of_slots[slot];
    if (bottleneck[rank_of(slot)] == 0) {
      confined[static_cast<std::size_t>(map[slot])] = false;
    }
  }

  std::printf(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"760\" height=\"450\" viewBox=\"0 0 760 "
      "450\" role=\"img\" aria-label=\"Experts, ranks and the bottleneck of a step\">\n"
      "<style>\n"
      ":root{color-scheme:light dark;--bg:#fff;--ink:#1b2126;--soft:#56616b;--link:#0b7a70;"
      "--rank:#cfe2f1;--tight:#f3c3a5}\n"
      "@media screen and (prefers-color-scheme:dark){:root{--bg:#13171a;--ink:#e7ebee;"
      "--soft:#9ba7b1;--link:#2fc4b2;--rank:#2f6ca6;--tight:#9c4a1e}}\n"
      "text{font:13px system-ui,sans-serif;fill:var(--ink);text-anchor:middle}\n"
      ".h{font-size:15px;font-weight:600}.s{fill:var(--soft)}\n"
      "line{stroke:var(--link)}.none{stroke-dasharray:3 4;stroke:var(--soft)}\n"
      "rect.o{fill:var(--rank)}rect.t{fill:var(--tight)}\n"
      "</style>\n"
      "<rect width=\"760\" height=\"450\" rx=\"8\" style=\"fill:var(--bg)\"/>\n");
  std::printf("<text class=\"h\" x=\"%d\" y=\"32\">experts and their tokens</text>\n", expert_x);
  std::printf("<text class=\"h\" x=\"%d\" y=\"32\">ranks and their load</text>\n", rank_x);
  for (std::size_t slot = 0; slot < slots; ++slot) {
    int const y = expert_y(places[static_cast<std::size_t>(map[slot])]);
    bool const used = of_slots[slot] > 0;
    std::printf("<line%s x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" stroke-width=\"%.1f\"/>\n",
                used ? "" : " class=\"none\"", expert_x + 75, y, rank_x - 75, rank_y(rank_of(slot)),
                used ? 1.5 + of_slots[slot] / 40 : 1.5);
  }
  for (std::size_t e = 0; e < experts; ++e) {
    int const y = expert_y(places[e]);
    std::printf("<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"150\" height=\"30\" rx=\"6\"/>",
                confined[e] ? "t" : "o", expert_x - 75, y - 15);
    std::printf("<text x=\"%d\" y=\"%d\">expert %zu: %d</text>\n", expert_x, y + 5, e, tokens[e]);
  }
  for (std::size_t r = 0; r < ranks; ++r) {
    std::printf("<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"150\" height=\"44\" rx=\"6\"/>",
                bottleneck[r] != 0 ? "t" : "o", rank_x - 75, rank_y(r) - 22);
    std::printf("<text x=\"%d\" y=\"%d\">rank %zu: %.0f</text>\n", rank_x, rank_y(r) + 5, r,
                of_rank[r]);
  }
  std::printf(
      "<text class=\"s\" x=\"380\" y=\"436\">bottleneck: the load of its experts is on no "
      "other rank, so the peak is at least %.0f</text>\n</svg>\n",
      lp.certificates()[0].lower_bound);
}
