// SPDX-License-Identifier: Apache-2.0
#include "../report.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <pugixml.hpp>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using examples::comparison;
using examples::index_t;
using examples::outcome;
using examples::plan;
using matrix = std::vector<std::vector<double>>;

/// Returns the rank loads by their definition.
std::vector<double> rank_loads(matrix const& loads, plan const& p) {
  std::vector<double> result;
  auto const placement = p.placement();
  for (index_t layer = 0; layer < p.layers; ++layer) {
    for (index_t rank = 0; rank < p.ranks; ++rank) {
      double load = 0;
      for (index_t slot = placement.rank_offsets(layer, rank);
           slot < placement.rank_offsets(layer, rank + 1); ++slot) {
        index_t const expert = placement.physical_to_logical(layer, slot);
        load += loads[static_cast<std::size_t>(layer)][static_cast<std::size_t>(expert)] /
                placement.replica_count(layer, expert);
      }
      result.push_back(load);
    }
  }
  return result;
}

examples::measured_plan measured(matrix const& loads, plan const& p) {
  examples::measured_plan result;
  result.rank_loads = rank_loads(loads, p);
  double means = 0;
  double peaks = 0;
  for (index_t layer = 0; layer < p.layers; ++layer) {
    auto const first = result.rank_loads.begin() + layer * p.ranks;
    double const peak = *std::max_element(first, first + p.ranks);
    double const mean = std::accumulate(first, first + p.ranks, 0.0) / static_cast<double>(p.ranks);
    result.balancedness.push_back(peak == 0 ? 1 : mean / peak);
    means += mean;
    peaks += peak;
  }
  result.summed.ratio_of_sums = peaks == 0 ? 1 : means / peaks;
  auto const worst = std::min_element(result.balancedness.begin(), result.balancedness.end());
  result.summed.mean =
      std::accumulate(result.balancedness.begin(), result.balancedness.end(), 0.0) /
      static_cast<double>(p.layers);
  result.summed.worst = result.summed.fifth_percentile = *worst;
  result.summed.worst_layer =
      p.layer_ids[static_cast<std::size_t>(worst - result.balancedness.begin())];
  return result;
}

comparison compared(std::string name, matrix const& loads, outcome const& o) {
  comparison result;
  result.loads = std::move(name);
  for (auto const& layer : loads) {
    result.expert_loads.insert(result.expert_loads.end(), layer.begin(), layer.end());
  }
  result.before = measured(loads, o.before);
  result.after = measured(loads, o.after);
  return result;
}

/// Makes results whose plan before is trivial. In the plan after, experts go to the slots in
/// reverse, so that extra slots hold the last experts.
outcome outcome_of(matrix const& loads, index_t ranks, index_t slots,
                   std::string name = "loads.npy") {
  auto const layers = static_cast<index_t>(loads.size());
  auto const experts = static_cast<index_t>(loads[0].size());
  outcome o;
  o.planner = "eplb";
  o.refinement = "packing";
  o.policy = "omp";
  o.before_name = "trivial";
  o.milliseconds = 12.3456;
  o.runs = 5;
  o.before = o.after = examples::trivial_plan(layers, experts, ranks, slots);
  std::fill(o.after.replica_count.begin(), o.after.replica_count.end(), 0);
  for (std::size_t i = 0; i < o.after.physical_to_logical.size(); ++i) {
    auto& expert = o.after.physical_to_logical[i];
    expert = static_cast<std::int32_t>(experts - 1 - expert);
    auto const layer = static_cast<index_t>(i) / slots;
    ++o.after.replica_count[static_cast<std::size_t>(layer * experts + expert)];
  }
  o.comparisons.push_back(compared(std::move(name), loads, o));
  return o;
}

/// Returns irregular loads with decimals.
matrix skewed(index_t layers, index_t experts) {
  matrix loads;
  std::uint32_t state = 1;
  for (index_t layer = 0; layer < layers; ++layer) {
    loads.emplace_back();
    for (index_t expert = 0; expert < experts; ++expert) {
      state = state * 1664525U + 1013904223U;
      loads.back().push_back(1e6 / (1.0 + (state >> 20U)));
    }
  }
  return loads;
}

outcome const& small() {
  static outcome const o = outcome_of(skewed(3, 8), 4, 10);
  return o;
}

/// Makes results of craft, with a loss and with a layer without replicas.
outcome crafted() {
  outcome o = small();
  o.planner = "craft";
  o.craft = {.chosen = "automatic",
             .replicas_per_rank = 2,
             .steps = 1,
             .filled = {1, 1, 1},
             .estimate = {{1, 2, 4},
                          {0.5, 0.25, 0.75},
                          {0.125, 0.1875, 0.375, 0.25, 0.375, 0.5, 0, -0.125, 0.0625}},
             .allocation = {{4, 4, 0}, {0.375, 0.5, 0}, {0, 0.5, 0.875, 0.9375}, 2, 8, 8}};
  return o;
}

/// Makes results with latencies, on two files of loads.
outcome timed() {
  outcome o = small();
  o.planner = "gem";
  o.gem = {.latency = "curves.json", .curves = {}, .trace_length = 16, .restarts = 30};
  o.comparisons[0].steps = 40;
  o.comparisons.push_back(compared("tuesday.npy", skewed(3, 8), o));
  for (comparison& c : o.comparisons) {
    c.before.latency = {.mean = 12,
                        .worst = 16,
                        .worst_layer = 2,
                        .worst_step = 5,
                        .ninety_fifth_percentile = 15,
                        .of_layers = {8, 12, 16},
                        .of_ranks = {8, 1, 2, 3, 4, 5, 6, 12, 7.125, 8, 9, 10}};
    c.after.latency = {.mean = 9,
                       .worst = 11,
                       .ninety_fifth_percentile = 10,
                       .of_layers = {8, 9, 10},
                       .of_ranks = {7, 7, 7, 7, 8, 8, 8, 8, 9, 9, 9, 0}};
  }
  return o;
}

std::string report_of(outcome const& o) {
  std::ostringstream out;
  examples::write_report(out, o);
  return out.str();
}

pugi::xml_document parsed(std::string const& text) {
  pugi::xml_document page;
  auto const result =
      page.load_buffer(text.data(), text.size(), pugi::parse_default | pugi::parse_doctype);
  REQUIRE_MESSAGE(bool(result), result.description());
  return page;
}

double number(pugi::xml_node node, char const* attribute) {
  std::string_view const text = node.attribute(attribute).value();
  double value = -1;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  REQUIRE(error == std::errc());
  REQUIRE(end == text.data() + text.size());
  return value;
}

std::vector<pugi::xml_node> all(pugi::xml_node page, std::string const& query) {
  std::vector<pugi::xml_node> nodes;
  for (auto const& found : page.select_nodes(query.c_str())) {
    nodes.push_back(found.node());
  }
  return nodes;
}

std::vector<pugi::xml_node> all(pugi::xml_document&&, std::string const&) = delete;  // dangling

std::size_t count(std::string const& text, std::string const& query) {
  return parsed(text).select_nodes(query.c_str()).size();
}

/// Returns all text of an element, in order.
std::string text_of(pugi::xml_node node) {
  std::string text = node.value();
  for (pugi::xml_node const child : node.children()) {
    text += text_of(child);
  }
  return text;
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

/// Checks that each rank, layer and side has one bar, with the exact load and a proportional
/// height.
void check_bars(outcome const& o) {
  pugi::xml_document const page = parsed(report_of(o));
  plan const& p = o.after;
  auto const& loads = o.comparisons[0];
  auto const panels = all(page, "//svg[@data-scale]");
  REQUIRE(panels.size() == static_cast<std::size_t>(p.layers));
  auto const ranks = static_cast<std::size_t>(p.ranks);
  REQUIRE(all(page, "//rect[@data-load]").size() == 2 * panels.size() * ranks);
  for (std::size_t row = 0; row < panels.size(); ++row) {
    CAPTURE(row);
    auto const layer_id = static_cast<double>(p.layer_ids[row]);
    CHECK(number(panels[row], "data-layer") == layer_id);
    double const scale = number(panels[row], "data-scale");
    CHECK(scale == number(panels[0], "data-scale"));
    double total = 0;
    for (std::string const side : {"b", "a"}) {
      auto const& plan_loads = side == "b" ? loads.before : loads.after;
      auto const bars = all(panels[row], ".//rect[@class='" + side + "']");
      REQUIRE(bars.size() == ranks);
      auto const first = plan_loads.rank_loads.begin() + static_cast<index_t>(row) * p.ranks;
      total = std::accumulate(first, first + p.ranks, 0.0);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        double const load = first[static_cast<index_t>(rank)];
        CHECK(number(bars[rank], "data-load") == load);
        CHECK(number(bars[rank], "data-layer") == layer_id);
        CHECK(number(bars[rank], "data-rank") == static_cast<double>(rank));
        double const height =
            total == 0 ? 0 : 100 * load / (total / static_cast<double>(p.ranks)) / scale;
        CHECK(number(bars[rank], "height") == doctest::Approx(height).epsilon(1e-4));
        CHECK(height <= 100.0001);
      }
    }
    auto const lines = all(panels[row], ".//path[@class='m']");
    REQUIRE(lines.size() == (total == 0 ? 0 : 1));
    if (total > 0) {
      std::istringstream line(lines[0].attribute("d").value());
      char move = 0;
      double x = -1;
      double y = -1;
      line >> move >> x >> y;
      CHECK(move == 'M');
      CHECK(x == 0);
      CHECK(y == doctest::Approx(100 / scale).epsilon(1e-4));
    }
  }
}

/// Returns the class of every cell of a heat map, from its paths; -1 for a cell that is not drawn.
std::vector<int> heat_classes(pugi::xml_node map, plan const& p) {
  std::vector<int> cells(static_cast<std::size_t>(p.layers * p.ranks), -1);
  for (pugi::xml_node const path : all(map, "./svg/path")) {
    std::istringstream d(path.attribute("d").value());
    char letter = 0;
    index_t x = 0;
    index_t y = 0;
    index_t width = 0;
    index_t height = 0;
    index_t back = 0;
    while (d >> letter >> x >> y >> letter >> width >> letter >> height >> letter >> back >>
           letter) {
      CHECK(height == 1);
      CHECK(back == -width);
      CHECK(letter == 'z');
      for (index_t rank = x; rank < x + width; ++rank) {
        int& cell = cells.at(static_cast<std::size_t>(y * p.ranks + rank));
        CHECK(cell == -1);
        cell = path.attribute("class").value()[1] - '0';
      }
    }
  }
  return cells;
}

int expected_class(double load, double mean) {
  double const share = mean == 0 ? 1 : load / mean;
  return share < 0.25    ? 0
         : share < 0.5   ? 1
         : share < 0.8   ? 2
         : share < 0.95  ? 3
         : share <= 1.05 ? 4
         : share <= 1.25 ? 5
         : share <= 2    ? 6
         : share <= 4    ? 7
                         : 8;
}

void check_heat_maps(outcome const& o) {
  pugi::xml_document const page = parsed(report_of(o));
  auto const maps = all(page, "//svg[@data-side]");
  REQUIRE(maps.size() == 2 * o.comparisons.size());
  for (std::size_t i = 0; i < maps.size(); ++i) {
    CAPTURE(i);
    comparison const& c = o.comparisons[i / 2];
    CHECK(number(maps[i], "data-loads") == static_cast<double>(i / 2));
    CHECK(maps[i].attribute("data-side").value() == std::string(i % 2 == 0 ? "before" : "after"));
    auto const& loads = (i % 2 == 0 ? c.before : c.after).rank_loads;
    auto const cells = heat_classes(maps[i], o.after);
    for (std::size_t at = 0; at < cells.size(); ++at) {
      CAPTURE(at);
      auto const row = static_cast<index_t>(at) / o.after.ranks;
      auto const first = loads.begin() + row * o.after.ranks;
      double const mean =
          std::accumulate(first, first + o.after.ranks, 0.0) / static_cast<double>(o.after.ranks);
      CHECK(cells[at] == expected_class(loads[at], mean));
    }
  }
}

/// Checks rules of XML that the parser does not enforce, and that the page loads no other file.
void check_text(std::string const& text) {
  for (char const c : text) {
    REQUIRE((static_cast<unsigned char>(c) >= ' ' || c == '\n'));
  }
  std::set<std::string> const entities{"&amp;", "&lt;", "&gt;", "&quot;"};
  for (auto at = text.find('&'); at != std::string::npos; at = text.find('&', at + 1)) {
    REQUIRE(entities.count(text.substr(at, text.find(';', at) + 1 - at)) == 1);
  }
  std::string rest = text;
  for (std::string const known :
       {"xmlns=\"http://www.w3.org/1999/xhtml\"", "xmlns=\"http://www.w3.org/2000/svg\""}) {
    for (auto at = rest.find(known); at != std::string::npos; at = rest.find(known, at)) {
      rest.erase(at, known.size());
    }
  }
  for (char const* const reference :
       {"http", "//", "<script", "<link", "<img", "<iframe", "<object", "<image", "@import", "url(",
        "src=", "href", "onload", "<base", "<form", "nan", "inf\"", "-inf"}) {
    CAPTURE(reference);
    CHECK_FALSE(contains(rest, reference));
  }
  pugi::xml_document const page = parsed(text);
  for (pugi::xml_node const element : all(page, "//*")) {
    std::set<std::string> names;
    for (pugi::xml_attribute const attribute : element.attributes()) {
      CHECK(names.insert(attribute.name()).second);
    }
  }
}

TEST_SUITE("report") {
  TEST_CASE("every rank of every layer has one bar before and one after") {
    check_bars(small());
    check_bars(outcome_of(skewed(2, 70), 64, 70));
  }

  TEST_CASE("layers keep the model's ids") {
    outcome o = small();
    o.before.layer_ids = o.after.layer_ids = {3, 17, 40};
    o.comparisons[0].before.summed.worst_layer = 17;
    check_bars(o);
    std::string const text = report_of(o);
    CHECK(contains(text, "3 (some of 3 to 40)"));
    CHECK(contains(text, "data-worst-layer=\"17\""));
  }

  TEST_CASE("uneven slots, one rank, one layer, one expert, no load") {
    for (outcome const& o : {outcome_of(skewed(2, 5), 3, 7), outcome_of(skewed(2, 5), 1, 5),
                             outcome_of(skewed(1, 5), 2, 6), outcome_of({{3.5}}, 1, 1),
                             outcome_of({{0, 0}, {0, 0}}, 2, 2), outcome_of({{0, 0}, {1, 2}}, 2, 3),
                             outcome_of({{0}}, 1, 1)}) {
      check_bars(o);
      check_heat_maps(o);
      check_text(report_of(o));
    }
    CHECK(contains(report_of(outcome_of(skewed(2, 5), 3, 7)), "7 (2 to 3 a rank)"));
  }

  TEST_CASE("without load every layer is balanced and no expert is hot") {
    std::string const text = report_of(outcome_of({{0, 0}, {0, 0}}, 2, 2));
    CHECK(contains(text, "No expert with load has replicas, before or after."));
    CHECK(contains(text, "<i>1.00× →</i> 1.00×"));
    CHECK(contains(text, "as much to wait for as before"));
    CHECK(contains(text, "no load"));
    CHECK(contains(text, "2, left out"));
    CHECK_FALSE(contains(report_of(small()), "left out"));
  }

  TEST_CASE("the heat map has the class of every rank") {
    check_heat_maps(small());
    // 12 loads whose mean is 1: one on each edge, which belongs to the class nearer to 1.
    matrix const edges{{0, 0.25, 0.5, 0.8, 0.95, 1, 1.05, 1.25, 2, 4, 0.1, 0.1}};
    CHECK(expected_class(0.25, 1) == 1);
    CHECK(expected_class(2, 1) == 6);
    check_heat_maps(outcome_of(edges, 12, 12));
  }

  TEST_CASE("balancedness of every layer is marked before and after") {
    pugi::xml_document const page = parsed(report_of(small()));
    comparison const& c = small().comparisons[0];
    for (std::string const side : {"b", "a"}) {
      auto const dots = all(page, "//svg[@data-loads='0']/circle[@class='" + side + "']");
      REQUIRE(dots.size() == 3);
      for (std::size_t row = 0; row < 3; ++row) {
        double const value = (side == "b" ? c.before : c.after).balancedness[row];
        CHECK(number(dots[row], "data-balancedness") == value);
        CHECK(number(dots[row], "data-layer") == static_cast<double>(row));
        CHECK(number(dots[row], "cy") == doctest::Approx(220 * (1 - value)).epsilon(1e-3));
      }
    }
  }

  TEST_CASE("bars are side by side, before on the left") {
    for (outcome const& o : {small(), outcome_of(skewed(2, 70), 64, 70)}) {
      pugi::xml_document const page = parsed(report_of(o));
      for (pugi::xml_node const panel : all(page, "//svg[@data-scale]")) {
        std::istringstream box(panel.attribute("viewBox").value());
        std::array<double, 4> edges{};
        box >> edges[0] >> edges[1] >> edges[2] >> edges[3];
        CHECK(edges == std::array<double, 4>{0, -100, edges[2], 100});
        double end = 0;
        for (pugi::xml_node const bar : all(panel, ".//rect")) {
          CHECK(number(bar, "x") >= end);
          end = number(bar, "x") + number(bar, "width");
        }
        CHECK(end <= edges[2]);
      }
    }
  }

  TEST_CASE("axes are labeled at round ids, and not too densely") {
    auto const labels = [](std::vector<std::int64_t> const& ids) {
      auto const layers = static_cast<index_t>(ids.size());
      outcome o = outcome_of(skewed(layers, 2), 2, 2);
      o.before.layer_ids = o.after.layer_ids = ids;
      pugi::xml_document const page = parsed(report_of(o));
      std::string result;
      for (pugi::xml_node const text : all(page, "//svg[circle]/text[@class='n']")) {
        result += text_of(text) + " ";
        std::string const query = "//circle[@class='a' and @data-layer='" + text_of(text) + "']";
        pugi::xml_node const dot = page.select_node(query.c_str()).node();
        CHECK(dot.attribute("cx").value() == std::string(text.attribute("x").value()));
      }
      auto const dots = all(page, "//circle[@class='a']");
      for (std::size_t row = 0; row < dots.size(); ++row) {
        double const x = std::stod(dots[row].attribute("cx").value());
        CHECK(x ==
              doctest::Approx((static_cast<double>(row) + 0.5) * 100 / static_cast<double>(layers))
                  .epsilon(1e-4));
      }
      return result;
    };
    std::vector<std::int64_t> ids(58);
    std::iota(ids.begin(), ids.end(), 3);
    CHECK(labels(ids) == "10 20 30 40 50 60 ");
    CHECK(labels({7}) == "7 ");
    CHECK(labels({1, 3, 4}) == "1 3 4 ");
    CHECK(labels({1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23}) == "1 5 9 13 17 21 ");
  }

  TEST_CASE("the table has the figures that the program prints") {
    outcome o = small();
    comparison& c = o.comparisons[0];
    c.steps = 5;
    c.before.per_step = {
        .mean = 0.5, .worst = 0.25, .worst_layer = 2, .worst_step = 4, .fifth_percentile = 1.0 / 3};
    c.after.per_step = {
        .mean = 0.75, .worst = 0.7, .worst_layer = 1, .worst_step = 3, .fifth_percentile = 0.72};
    pugi::xml_document const page = parsed(report_of(o));
    auto const rows = all(page, "//tbody[@data-loads='0']/tr");
    REQUIRE(rows.size() == 6);
    auto const cells = [&](std::size_t row) {
      std::vector<std::string> texts;
      for (pugi::xml_node const cell : rows[row].children("td")) {
        texts.push_back(text_of(cell));
      }
      return texts;
    };
    using texts = std::vector<std::string>;
    CHECK(cells(2) == texts{"0.5000", "0.3333", "0.2500", "2", "4"});
    CHECK(cells(3) == texts{"0.7500", "0.7200", "0.7000", "1", "3"});
    CHECK(cells(0)[4].empty());
    CHECK(contains(text_of(rows[4]), "step by step, optimal split"));
    CHECK(number(rows[4].child("td"), "data-mean") == c.before.optimal.mean);
    CHECK(number(rows[5].child("td"), "data-mean") == c.after.optimal.mean);
    CHECK(contains(text_of(rows[0]), "sum of 5 steps"));
    CHECK(number(rows[2].child("td").next_sibling(), "data-fifth-percentile") == 1.0 / 3);
    CHECK(number(rows[0].child("td"), "data-mean") == c.before.summed.mean);
    CHECK(number(rows[1].child("td"), "data-mean") == c.after.summed.mean);
  }

  TEST_CASE("the key figures come first") {
    outcome const o = outcome_of({{6, 2}, {1, 1}}, 2, 3);  // the second rank has two slots
    std::string const text = report_of(o);
    CHECK(text.find("class=\"tile worse\"") < text.find("<table"));
    CHECK(count(text, "//div[@class='tile' or @class='tile worse']") == 3);
    // The layers' busiest ranks carry 5 + 1.5 before and 7 + 1.5 after; the means are 4 and 1.
    CHECK(contains(text, "<i>1.30× →</i> 1.70×"));
    CHECK(contains(text, "30.8 % more to wait for"));
    CHECK(contains(text, "layer 1 before, layer 0 after"));
  }

  TEST_CASE("figures that got worse are marked") {
    outcome o = outcome_of({{6, 2}, {1, 1}}, 2, 3);
    auto const classes = [&] {
      std::string const text = report_of(o);
      pugi::xml_document const page = parsed(text);
      std::string result;
      for (pugi::xml_node const tile : all(page, "//div[starts-with(@class,'tile')]/@class/..")) {
        std::string const name = tile.attribute("class").value();
        result += name == "tile" ? '+' : name == "tile worse" ? '-' : ' ';
      }
      return result;
    };
    CHECK(classes() == " ---");
    std::swap(o.comparisons[0].before, o.comparisons[0].after);
    CHECK(classes() == " +++");
    o.comparisons[0].before.per_step = examples::balance_statistics{.mean = 0.5};
    o.comparisons[0].after.per_step = examples::balance_statistics{.mean = 0.25};
    CHECK(classes() == " -+++");
  }

  TEST_CASE("the page states what was planned") {
    outcome o = outcome_of(skewed(2, 8), 4, 1200);
    o.nodes = 2;
    o.groups = 4;
    o.hierarchical = true;
    o.expert_bytes = 1 << 20;
    o.refinement = "joint";
    std::string text = text_of(parsed(report_of(o)));
    for (char const* const fact :
         {"joint", "12.346 ms (omp, median of 5)", "slot i has expert i mod experts",
          "2 (layers 0 to 1)", "8 in 4 groups, kept to nodes", "4 on 2 nodes", "1,200 (300 a rank)",
          "1,192 a layer", "600.00 MiB"}) {
      CAPTURE(fact);
      CHECK(contains(text, fact));
    }
    --o.after.replica_count[0];  // as in a plan from a file, whose layers may differ
    o.planner = "none";
    o.milliseconds.reset();
    o.expert_bytes.reset();
    o.before_name = "old.json";
    text = text_of(parsed(report_of(o)));
    CHECK(contains(text, "none, the plan was read"));
    CHECK(contains(text, "2,383 in all"));
    CHECK(contains(text, "old.json"));
    CHECK_FALSE(contains(text, " ms"));
    CHECK_FALSE(contains(text, "weights"));
  }

  TEST_CASE("the page states moves and when they pay off") {
    outcome o = small();
    o.expert_bytes = 1 << 20;
    o.moves = examples::migration_outcome{.token_us = 0.5, .changed_layers = {0, 2}};
    o.moves->transfers.list.resize(5);
    o.moves->transfers.layers = {{3, 3, 1, {4, 0}}, {}, {1, 1, 0, {0, 1}}};
    o.moves->transfers.received_bytes = {1 << 20, 3 << 20};
    o.moves->transfers.seconds = 12e-6;
    o.comparisons[0].before.summed.peaks = 18;
    o.comparisons[0].after.summed.peaks = 8;
    std::string text = text_of(parsed(report_of(o)));
    for (char const* const fact :
         {"4 slots, 1 copy within a rank, in 2 of 3 layers",
          "4 rounds (one-peer), at most 3 a layer, 4.00 MiB in about 12.0 us",
          "after 3 steps, on loads.npy: a step takes about 5.0 us less"}) {
      CAPTURE(fact);
      CHECK(contains(text, fact));
    }
    CHECK_FALSE(contains(text_of(parsed(report_of(small()))), "break-even"));
  }

  TEST_CASE("the hottest experts are those with the most load for their layer") {
    // Expert 1 of the second layer has less load than any of the first, but twice its mean.
    outcome const o = outcome_of({{100, 100, 130}, {1, 6, 2}}, 3, 4);
    pugi::xml_document const page = parsed(report_of(o));
    auto const hot = all(page, "//tr[@data-expert]");
    // Experts with one replica before and after are not listed, however hot.
    REQUIRE(hot.size() == 4);
    CHECK(number(hot[0], "data-layer") == 0);
    CHECK(number(hot[0], "data-expert") == 2);
    CHECK(number(hot[0], "data-load") == 130);
    CHECK(contains(text_of(hot[0]), "1.2"));
    // The extra slot goes to expert 0 before and to the last one after.
    CHECK(contains(text_of(hot[0]), "1 → 2"));
    CHECK(contains(text_of(hot[0]), "130 → 65"));
    CHECK(number(hot[1], "data-expert") == 0);
    CHECK(contains(text_of(hot[1]), "2 → 1"));
    CHECK(number(hot[2], "data-layer") == 1);
    CHECK(count(report_of(outcome_of(skewed(4, 8), 4, 16)), "//tr[@data-expert]") == 16);
    CHECK(count(report_of(outcome_of(skewed(4, 8), 4, 8)), "//tr[@data-expert]") == 0);
  }

  TEST_CASE("the main figures are those of single steps, with the place of the worst") {
    outcome o = small();
    comparison& c = o.comparisons[0];
    c.steps = 1000;
    c.empty_steps = 984;
    c.before.per_step = {.mean = 0.5,
                         .ratio_of_sums = 0.25,
                         .worst = 0.125,
                         .worst_layer = 2,
                         .worst_step = 4,
                         .fifth_percentile = 0.25};
    c.after.per_step = {.mean = 0.75,
                        .ratio_of_sums = 0.5,
                        .worst = 0.625,
                        .worst_layer = 1,
                        .worst_step = 3,
                        .fifth_percentile = 0.7};
    pugi::xml_document const page = parsed(report_of(o));
    auto const tiles = all(page, "//div[starts-with(@class,'tile ') or @class='tile']");
    REQUIRE(tiles.size() == 4);
    CHECK(contains(text_of(tiles[0]), "0.500 → 0.750"));
    CHECK(contains(text_of(tiles[1]), "0.125 → 0.625"));
    CHECK(contains(text_of(tiles[1]), "layer 2, step 4 before, layer 1, step 3 after"));
    CHECK(contains(text_of(tiles[2]), "4.00× → 2.00×"));
    CHECK(contains(text_of(tiles[2]), "50.0 % less to wait for"));
    CHECK(contains(text_of(tiles[3]), "of the sum of 16 steps"));
    CHECK(contains(text_of(page), "984 of 1,000 in loads.npy, left out"));
  }

  TEST_CASE("the verdict names the engine's options, and says when not to serve the plan") {
    outcome o = small();
    o.before = o.after = examples::trivial_plan(3, 8, 4, 12);
    auto& c = o.comparisons[0];
    c.before.summed.mean = 0.5;
    c.after.summed.mean = 0.75;
    auto const verdict = [&] {
      pugi::xml_document const page = parsed(report_of(o));
      REQUIRE(all(page, "//p[@class='verdict']").size() == 1);
      return text_of(all(page, "//p[@class='verdict']")[0]);
    };
    CHECK(verdict() ==
          "Serve this plan, with SGLang's --ep-size 4 --ep-num-redundant-experts 4: mean "
          "balancedness rises from 0.5000 to 0.7500 on loads.npy.");
    o.output = "a.json";
    o.format = "sglang";
    CHECK(contains(verdict(), "--ep-num-redundant-experts 4 --init-expert-location a.json: mean"));
    o.output = "a.yaml";
    o.format = "trtllm";
    CHECK(contains(verdict(),
                   "TensorRT-LLM's moe_expert_parallel_size: 4 and load_balancer: a.yaml"));
    // The loads of --evaluate decide, and single steps.
    o.comparisons.push_back(c);
    o.comparisons[1].loads = "later.npy";
    o.comparisons[1].before.per_step = examples::balance_statistics{.mean = 0.625};
    o.comparisons[1].after.per_step = examples::balance_statistics{.mean = 0.5};
    CHECK(verdict() ==
          "Keep what is in use: mean balancedness is 0.5000 with this plan, not more than the "
          "0.6250 before, on later.npy, step by step.");
    pugi::xml_document const timed_page = parsed(report_of(timed()));
    CHECK(contains(text_of(all(timed_page, "//p[@class='verdict']")[0]),
                   "a layer takes 9.00 us on average instead of 12.00 us on tuesday.npy"));
  }

  TEST_CASE("a warning about more copies than ranks names the option that helps") {
    outcome o = small();  // four ranks
    CHECK(count(report_of(o), "//p[@class='warning']") == 0);
    o.refinement = "none";
    o.after.replica_count[9] = 5;
    o.after.replica_count[10] = 7;
    pugi::xml_document const page = parsed(report_of(o));
    REQUIRE(all(page, "//p[@class='warning']").size() == 1);
    CHECK(text_of(all(page, "//p[@class='warning']")[0]) ==
          "Warning: expert 1 of layer 1 has 5 copies on 4 ranks, and 1 more expert has too many; a "
          "second copy on a rank takes no load off it: plan with --apart rank or --refine joint.");
    o.refinement = "joint";  // which did not help then
    CHECK(contains(text_of(parsed(report_of(o))), "off it: plan with --apart rank."));
    o.planner = "gem";  // has no such options
    CHECK_FALSE(contains(report_of(o), "--apart"));
    CHECK(contains(report_of(o), "has 5 copies on 4 ranks"));
  }

  TEST_CASE("the page states the program, the date and the command line") {
    outcome o = small();
    o.program = "plan_experts 1.2.3";
    o.date = "2026-11-22 23:00 UTC";
    o.command = "plan_experts 'a&b.npy' --ranks 4";
    pugi::xml_document const page = parsed(report_of(o));
    CHECK(text_of(all(page, "//footer")[0]) ==
          "Written by plan_experts 1.2.3 of Plimsoll on 2026-11-22 23:00 UTC with:plan_experts "
          "'a&b.npy' --ranks 4");
    CHECK(text_of(all(page, "//svg[@data-loads='0' and circle]/text[@class='t']")[0]) ==
          "layer of the model");
  }

  TEST_CASE("results of craft have their charts") {
    CHECK(count(report_of(small()), "//*[@data-chart]") == 0);
    outcome o = crafted();
    std::string text = report_of(o);
    check_text(text);
    {
      pugi::xml_document const page = parsed(text);
      CHECK(contains(text_of(page), "2 over all layers, chosen at the knee"));
      CHECK(contains(text_of(page),
                     "The line marks R = 2, chosen at the knee. The knee is the point"));
      CHECK(contains(text_of(page), "8 of 8 replicas are used: 0 in 1 layer, 4 in 2 layers."));
      CHECK(contains(text_of(page), "expected to rise from 0.5000 to 0.7917."));
      auto const dots = all(page, "//svg[@data-chart='curve']/circle");
      REQUIRE(dots.size() == 4);  // no ring
      CHECK(dots[0].attribute("cy").value() == std::string("220.000"));
      CHECK(dots[2].attribute("cx").value() == std::string("66.667%"));
      CHECK(number(dots[2], "data-gain") == 0.875);
      CHECK(number(dots[3], "cy") == 0);
      auto const marked = all(page, "//line[@data-chosen='2']");
      REQUIRE(marked.size() == 1);
      CHECK(marked[0].attribute("x1").value() == std::string("66.667%"));
      auto const cells = all(page, "//svg[@data-chart='gains']/rect[@data-gain]");
      REQUIRE(cells.size() == 9);
      for (std::size_t i = 0; i < 9; ++i) {
        double const gain = o.craft->estimate.gain[i];
        CHECK(number(cells[i], "data-gain") == gain);
        CHECK(number(cells[i], "data-layer") == static_cast<double>(i / 3));
        CHECK(number(cells[i], "fill-opacity") == doctest::Approx(std::abs(gain) / 0.5));
        CHECK(cells[i].attribute("class").value() == std::string(gain < 0 ? "c7" : "a"));
      }
      CHECK(contains(text_of(cells[7]), "layer 2 with 2 more: 0.6250, -0.1250"));
      CHECK(all(page, "//svg[@data-chart='gains']/circle").size() == 2);
      auto const bars = all(page, "//svg[@data-chart='expected-gain']/rect");
      REQUIRE(bars.size() == 3);
      CHECK(number(bars[0], "height") == doctest::Approx(110 * 0.375 / 0.5));
      CHECK(number(bars[2], "height") == 0);
    }
    // A budget that layers cannot use up, and a knee at another number.
    o.craft->chosen = "replicas_per_rank";
    o.craft->replicas_per_rank = 200;
    o.craft->allocation.knee = 1;
    text = report_of(o);
    pugi::xml_document const page = parsed(text);
    CHECK(contains(text_of(page), "R = 200, as asked; the knee is at 1. The knee (the ring) is"));
    CHECK(page.select_node("//line[@data-chosen]").node().attribute("x1").value() ==
          std::string("100.000%"));
    CHECK(all(page, "//circle[@data-knee='1']").size() == 1);
  }

  TEST_CASE("latencies of ranks have their panels") {
    CHECK(count(report_of(small()), "//*[@data-chart='latency']") == 0);
    outcome const o = timed();
    std::string const text = report_of(o);
    check_text(text);
    check_bars(o);  // those of the loads are still there
    check_heat_maps(o);
    pugi::xml_document const page = parsed(text);
    CHECK(contains(text_of(page), "the last 16 of 40 steps"));
    CHECK(contains(text_of(page), "Mean latency of each rank over 40 steps"));
    CHECK(contains(text, "<b><i>12.00 →</i> 9.00</b>"));
    CHECK(contains(text, "µs, of the same plans on <bdi>tuesday.npy</bdi>"));
    auto const panels = all(page, "//section[@id='latency-0']//svg[@data-chart='latency']");
    REQUIRE(panels.size() == 3);
    double const full = 1.08 * 16;
    auto const& c = o.comparisons[0];
    for (std::size_t row = 0; row < 3; ++row) {
      CHECK(number(panels[row], "data-layer") == static_cast<double>(row));
      CHECK(number(panels[row], "data-full") == doctest::Approx(full));
      auto const bars = all(panels[row], ".//rect");
      REQUIRE(bars.size() == 8);
      for (std::size_t i = 0; i < 8; ++i) {
        auto const& side = i < 4 ? *c.before.latency : *c.after.latency;
        CHECK(bars[i].attribute("class").value() == std::string(i < 4 ? "b" : "a"));
        CHECK(number(bars[i], "data-rank") == static_cast<double>(i % 4));
        double const value = side.of_ranks[4 * row + i % 4];
        CHECK(number(bars[i], "data-latency") == value);
        CHECK(number(bars[i], "height") == doctest::Approx(100 * value / full).epsilon(1e-4));
      }
      auto const lines = all(panels[row], ".//path");
      REQUIRE(lines.size() == 2);
      CHECK(number(lines[0], "data-of-layer") == c.before.latency->of_layers[row]);
      CHECK(number(lines[1], "data-of-layer") == c.after.latency->of_layers[row]);
      CHECK(lines[0].attribute("d").value() ==
            fmt::format("M0 {:.4f}h4", 100 * c.before.latency->of_layers[row] / full));
      CHECK(lines[1].attribute("d").value() ==
            fmt::format("M5 {:.4f}h4", 100 * c.after.latency->of_layers[row] / full));
    }
    auto const rows = all(page, "//section[@id='latency-0']//tr[@data-rows='latency']");
    REQUIRE(rows.size() == 2);
    CHECK(text_of(rows[0]) == "before12.0015.0016.0025");
    CHECK(number(rows[1].child("td"), "data-mean") == 9);
    CHECK(all(page, "//section[@id='latency-1']//rect[@data-latency]").size() == 24);
    CHECK(
        contains(text_of(page.select_node("//section[@id='latency-1']/h2").node()), "tuesday.npy"));
  }

  TEST_CASE("a slower plan is marked as worse; latencies of 0") {
    outcome o = timed();
    std::swap(o.comparisons[0].before.latency, o.comparisons[0].after.latency);
    pugi::xml_document const page = parsed(report_of(o));
    auto const tile = all(page, "//div[@class='tile worse']").front();
    CHECK(contains(text_of(tile), "Mean latency of a layer9.00 → 12.00"));
    for (auto* const side : {&o.comparisons[0].before, &o.comparisons[0].after}) {
      std::fill(side->latency->of_layers.begin(), side->latency->of_layers.end(), 0.0);
      std::fill(side->latency->of_ranks.begin(), side->latency->of_ranks.end(), 0.0);
    }
    check_text(report_of(o));
  }

  TEST_CASE("craft without any gain") {
    outcome o = outcome_of({{0.0}}, 1, 1);
    o.craft = {.chosen = "automatic",
               .estimate = {{1}, {1.0}, {0.0}},
               .allocation = {{0}, {0.0}, {0.0, 0.0}, 0, 0}};
    std::string const text = report_of(o);
    check_text(text);
    pugi::xml_document const page = parsed(text);
    for (pugi::xml_node const dot : all(page, "//circle[@data-each]")) {
      CHECK(number(dot, "cy") == 220);
    }
    CHECK(all(page, "//svg[@data-chart='gains']/circle").empty());
  }

  TEST_CASE("other loads have their own table, chart and heat map") {
    outcome o = small();
    o.comparisons.push_back(compared("tuesday.npy", skewed(3, 8), o));
    o.comparisons[1].before.balancedness[1] = 0.125;
    check_bars(o);  // those of the first loads and no more
    check_heat_maps(o);
    std::string const text = report_of(o);
    check_text(text);
    pugi::xml_document const page = parsed(text);
    CHECK(all(page, "//svg[@data-loads='1']/circle").size() == 6);
    CHECK(all(page, "//svg[@data-loads='1']/circle[@data-balancedness='0.125']").size() == 1);
    CHECK(all(page, "//tbody[@data-loads='1']").size() == 1);
    CHECK(all(page, "//div[@class='tile' or @class='tile worse']").size() == 4);
    std::set<std::string> ids;
    for (pugi::xml_node const element : all(page, "//*[@id]")) {
      CHECK(ids.insert(element.attribute("id").value()).second);
    }
    CHECK(ids.size() == 6);
  }

  TEST_CASE("names of files are escaped") {
    auto const shown = [](std::string const& name) {
      std::string const text = report_of(outcome_of({{1, 2}}, 2, 2, name));
      check_text(text);
      pugi::xml_document const page = parsed(text);
      CHECK(text_of(page.select_node("//title").node()) ==
            "Expert placement for " + text_of(page.select_node("//h1/bdi").node()));
      return text_of(page.select_node("//tbody//bdi").node());
    };
    std::string const unknown = "\xef\xbf\xbd";
    CHECK(shown("<a&\"b'>.npy") == "<a&\"b'>.npy");
    CHECK(shown("]]></style>&#38;.npy") == "]]></style>&#38;.npy");
    CHECK(shown(std::string("a\x01\n\t\x7f\0b", 7)) ==
          "a" + unknown + unknown + unknown + unknown + unknown + "b");
    CHECK(shown("ж é 中 🚢") == "ж é 中 🚢");
    // Invalid UTF-8 or XML: a lone continuation byte, a truncated sequence, an overlong one, a lone
    // surrogate, a code point that is too large, one that XML forbids, a control character of two
    // bytes.
    CHECK(shown("\xff.") == unknown + ".");
    CHECK(shown("\xe4\xb8.") == unknown + unknown + ".");
    CHECK(shown("\xe4\xb8") == unknown + unknown);
    CHECK(shown("\xc0\xaf.") == unknown + unknown + ".");
    CHECK(shown("\xed\xa0\x80.") == unknown + unknown + unknown + ".");
    CHECK(shown("\xf4\x90\x80\x80.") == unknown + unknown + unknown + unknown + ".");
    CHECK(shown("\xef\xbf\xbf.") == unknown + unknown + unknown + ".");
    CHECK(shown("\xc2\x85.") == unknown + unknown + ".");
    pugi::xml_document const quoted = parsed(report_of(outcome_of({{1, 2}}, 2, 2, "<a&\"b'>")));
    CHECK(quoted.select_node("//svg[circle]").node().attribute("aria-label").value() ==
          std::string("Balancedness of every layer on <a&\"b'>, before and after"));
    CHECK(shown("a/<b>/c.npy") == "a/<b>/c.npy");
    auto const titled = [](std::string const& name) {
      auto const page = parsed(report_of(outcome_of({{1, 2}}, 2, 2, name)));
      return text_of(page.select_node("//h1").node());
    };
    CHECK(titled("a/<b>/c.npy") == "Expert placement for c.npy");
    CHECK(titled("-") == "Expert placement for the standard input");
    outcome o = small();
    o.before_name = "<b>&.json";
    check_text(report_of(o));
    CHECK(contains(text_of(parsed(report_of(o))), "<b>&.json"));
  }

  TEST_CASE("the page is self-contained") { check_text(report_of(small())); }

  TEST_CASE("a large model stays below 3 MB, and has tooltips") {
    std::string const text = report_of(outcome_of(skewed(75, 256), 64, 320));
    CHECK(text.size() < 3'000'000);
    CHECK(count(text, "//rect[@data-load]/title") == 75 * 64 * 2);
  }

  TEST_CASE("very many bars are all drawn, without tooltips") {
    outcome const o = outcome_of(skewed(11, 1000), 1000, 1000);
    CHECK(count(report_of(o), "//rect[@data-load]/title") == 0);
    check_bars(o);
  }

  TEST_CASE("the picture of a layer") {
    std::ostringstream out;
    examples::write_layer_picture(out, small(), 1);
    std::string const text = out.str();
    check_text(text);
    CHECK(text.size() < 60'000);
    pugi::xml_document const page = parsed(text);
    comparison const& c = small().comparisons[0];
    auto const bars = all(page, "//rect[@data-load]");
    REQUIRE(bars.size() == 8);
    for (std::size_t i = 0; i < bars.size(); ++i) {
      CHECK(number(bars[i], "data-layer") == 1);
      CHECK(number(bars[i], "data-load") ==
            (i < 4 ? c.before.rank_loads[4 + i] : c.after.rank_loads[i]));
    }
    CHECK(contains(text, "prefers-color-scheme:dark"));
    std::ostringstream idle;
    examples::write_layer_picture(idle, outcome_of({{0, 0}}, 2, 2), 0);
    check_text(idle.str());
  }
}

}  // namespace
