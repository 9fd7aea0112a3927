// SPDX-License-Identifier: Apache-2.0
// check_report REPORT.html RESULT.json [MEASURED.json WIDTH light|dark]
// Checks that a report shows the figures of the file of results: as written and, with the
// measurements of measure.js in a browser, as drawn. Uses nothing of the library or the program.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <pugixml.hpp>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using nlohmann::json;
using row = std::vector<double>;

void expect(bool good, std::string const& what) {
  if (!good) {
    throw std::runtime_error(what);
  }
}

double number(std::string_view text) {
  double value = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  expect(error == std::errc() && end == text.data() + text.size() && !text.empty(),
         "a number, got '" + std::string(text) + "'");
  return value;
}

double number(pugi::xml_node node, char const* attribute) {
  expect(!node.attribute(attribute).empty(), std::string("an attribute ") + attribute);
  return number(std::string_view(node.attribute(attribute).value()));
}

json read_json(char const* file) {
  std::ifstream stream(file);
  expect(stream.good(), std::string("a readable file ") + file);
  return json::parse(stream);
}

double mean(row const& loads) {
  return std::accumulate(loads.begin(), loads.end(), 0.0) / static_cast<double>(loads.size());
}

/// A bar or a dot: class of the side, layer id, rank (-1 for a dot).
using place = std::tuple<std::string, double, double>;

std::string text(place const& p) {
  return "side " + std::get<0>(p) + ", layer " + std::to_string(std::get<1>(p)) + ", rank " +
         std::to_string(std::get<2>(p));
}

/// Adds the bars that the page must have, one for every value of `matrix[layer][rank]`.
void add(std::map<place, double>& expected, std::string const& side, json const& layer_ids,
         std::vector<row> const& matrix) {
  expect(matrix.size() == layer_ids.size(), "a row of results for every layer");
  for (std::size_t layer = 0; layer < matrix.size(); ++layer) {
    for (std::size_t rank = 0; rank < matrix[layer].size(); ++rank) {
      expected[{side, layer_ids[layer], static_cast<double>(rank)}] = matrix[layer][rank];
    }
  }
}

/// Removes a found mark from the expected ones, so that none may appear twice.
void match(std::map<place, double>& expected, place const& where, double value) {
  auto const found = expected.find(where);
  expect(found != expected.end(), "one mark for each value, got another at " + text(where));
  expect(found->second == value,
         std::to_string(found->second) + " at " + text(where) + ", got " + std::to_string(value));
  expected.erase(found);
}

std::map<place, double> bars_of(json const& result) {
  std::map<place, double> bars;
  json const& first = result.at("comparisons").at(0);
  add(bars, "b", result.at("layer_ids"), first.at("before").at("rank_loads"));
  add(bars, "a", result.at("layer_ids"), first.at("after").at("rank_loads"));
  return bars;
}

void check_bars(pugi::xml_document const& page, json const& result) {
  auto expected = bars_of(result);
  double scale = 0;
  for (auto const& match_of : page.select_nodes("//svg[@data-scale]")) {
    pugi::xml_node const panel = match_of.node();
    double const unit = 100 / number(panel, "data-mean") / number(panel, "data-scale");
    expect(scale == 0 || number(panel, "data-scale") == scale, "one scale for all panels");
    scale = number(panel, "data-scale");
    for (auto const& match_of_bar : panel.select_nodes(".//rect")) {
      pugi::xml_node const bar = match_of_bar.node();
      double const load = number(bar, "data-load");
      place const where{bar.attribute("class").value(), number(bar, "data-layer"),
                        number(bar, "data-rank")};
      expect(number(bar, "data-layer") == number(panel, "data-layer"), "a layer's bars in a panel");
      match(expected, where, load);
      double const height = load == 0 ? 0 : load * unit;
      expect(std::abs(number(bar, "height") - height) <= 1e-3 * std::max(height, 0.1),
             "height " + std::to_string(height) + " of the bar at " + text(where));
    }
  }
  expect(expected.empty(), "a bar for every value of rank_loads");
  expect(page.select_nodes("//rect[@data-load]").size() == bars_of(result).size(),
         "no bar outside of the panels");
}

void check_balancedness(pugi::xml_document const& page, json const& result) {
  for (std::size_t i = 0; i < result.at("comparisons").size(); ++i) {
    json const& comparison = result["comparisons"][i];
    std::map<place, double> expected;
    for (char const* side : {"before", "after"}) {
      std::vector<row> column;
      for (double const value : comparison.at(side).at("balancedness")) {
        column.push_back({value});
      }
      add(expected, side, result["layer_ids"], column);
    }
    auto const query = "//svg[@data-loads='" + std::to_string(i) + "']/circle";
    for (auto const& match_of : page.select_nodes(query.c_str())) {
      pugi::xml_node const dot = match_of.node();
      std::string const side =
          dot.attribute("class").value() == std::string("b") ? "before" : "after";
      match(expected, {side, number(dot, "data-layer"), 0}, number(dot, "data-balancedness"));
    }
    expect(expected.empty(), "a dot for every value of balancedness");
  }
}

void check_statistics(pugi::xml_node table, json const& comparison, std::string const& side,
                      std::string const& rows) {
  auto const line = table.find_child_by_attribute("tr", "data-rows", rows.c_str());
  pugi::xml_node const found = line.attribute("class").value() == side ? line : line.next_sibling();
  json const& expected = comparison.at(side).at(rows);
  if (expected.is_null()) {
    expect(!line, "no line of the table without steps");
    return;
  }
  expect(found.attribute("class").value() == side && found.attribute("data-rows").value() == rows,
         "a line of the table " + side + " for " + rows);
  std::map<std::string, double> cells;
  for (pugi::xml_node const cell : found.children("td")) {
    for (pugi::xml_attribute const attribute : cell.attributes()) {
      cells[attribute.name()] = number(std::string_view(attribute.value()));
    }
  }
  expect(cells.at("data-mean") == expected.at("mean"), "mean in the table");
  expect(cells.at("data-worst") == expected.at("worst"), "worst in the table");
  expect(cells.at("data-worst-layer") == expected.at("worst_layer"), "worst layer in the table");
  expect(cells.at("data-fifth-percentile") == expected.at("fifth_percentile"),
         "5th percentile in the table");
  expect(expected.at("worst_step").is_null() ||
             cells.at("data-worst-step") == expected.at("worst_step"),
         "worst step in the table");
}

void check_table(pugi::xml_document const& page, json const& result) {
  for (std::size_t i = 0; i < result.at("comparisons").size(); ++i) {
    auto const query = "//tbody[@data-loads='" + std::to_string(i) + "']";
    pugi::xml_node const table = page.select_node(query.c_str()).node();
    json const& comparison = result["comparisons"][i];
    auto name = comparison.at("loads").get<std::string>();
    for (std::size_t at = 0; at < name.size(); ++at) {
      if (static_cast<unsigned char>(name[at]) < ' ') {
        name.replace(at, 1, "\xef\xbf\xbd");  // XML has no control characters
      }
    }
    expect(table.select_node("tr/th/bdi").node().child_value() == name,
           "the name of the loads in the table");
    for (char const* side : {"before", "after"}) {
      check_statistics(table, comparison, side, "summed");
      check_statistics(table, comparison, side, "per_step");
      check_statistics(table, comparison, side, "optimal_split");
    }
  }
}

/// Checks the marks of a chart for craft: one for each of `expected`, in order.
std::vector<pugi::xml_node> marks(pugi::xml_document const& page, std::string const& chart,
                                  std::string const& query, char const* attribute,
                                  row const& expected) {
  std::vector<pugi::xml_node> found;
  auto const path = "//svg[@data-chart='" + chart + "']/" + query;
  for (auto const& match_of : page.select_nodes(path.c_str())) {
    found.push_back(match_of.node());
  }
  expect(found.size() == expected.size(), "a mark for each value in the chart " + chart);
  for (std::size_t i = 0; i < found.size(); ++i) {
    expect(number(found[i], attribute) == expected[i],
           std::to_string(expected[i]) + " as mark " + std::to_string(i) + " of " + chart);
  }
  return found;
}

/// Checks that the results of craft are consistent, and that the page shows them.
void check_craft(pugi::xml_document const& page, json const& result) {
  json const& craft = result.at("craft");
  if (craft.is_null()) {
    expect(page.select_nodes("//*[@data-chart!='latency']").empty(), "no chart about craft");
    return;
  }
  json const& ids = result.at("layer_ids");
  auto const counts = craft.at("replica_counts").get<row>();
  auto const base = craft.at("base").get<row>();
  auto const replicas = craft.at("replicas").get<row>();
  auto const gains = craft.at("expected_gain").get<row>();
  auto const curve = craft.at("curve").get<row>();
  expect(base.size() == ids.size() && replicas.size() == ids.size(), "a value for every layer");
  row all_gains;
  std::size_t with_replicas = 0;
  for (std::size_t layer = 0; layer < ids.size(); ++layer) {
    auto const of_layer = craft.at("gain").at(layer).get<row>();
    expect(of_layer.size() == counts.size(), "a gain for every count");
    all_gains.insert(all_gains.end(), of_layer.begin(), of_layer.end());
    auto const choice = std::find(counts.begin(), counts.end(), replicas[layer]) - counts.begin();
    bool const none = replicas[layer] == 0;
    expect(none || choice < static_cast<std::ptrdiff_t>(counts.size()),
           "replicas among the counts");
    expect(gains[layer] == (none ? 0 : of_layer[static_cast<std::size_t>(choice)]),
           "the gain of a layer's replicas");
    with_replicas += none ? 0 : 1;
  }
  double const used = std::accumulate(replicas.begin(), replicas.end(), 0.0);
  double const ranks = result.at("after").at("ranks");
  expect(craft.at("used") == used && used <= craft.at("budget"), "replicas within the budget");
  expect(craft.at("budget") == craft.at("replicas_per_rank").get<double>() * ranks, "the budget");
  expect(std::abs(craft.at("mean_base").get<double>() - mean(base)) < 1e-12, "the mean base");
  expect(std::abs(craft.at("mean_expected").get<double>() - mean(base) - mean(gains)) < 1e-12,
         "the expected mean");
  expect(curve.front() == 0 && std::is_sorted(curve.begin(), curve.end()), "a curve that rises");

  auto const dots = marks(page, "curve", "circle[@data-each]", "data-gain", curve);
  for (std::size_t i = 0; i < dots.size(); ++i) {
    double const y = curve.back() == 0 ? 220 : 220 * (1 - curve[i] / curve.back());
    expect(std::abs(number(dots[i], "cy") - y) < 1e-2, "a dot at the height of its gain");
  }
  marks(page, "curve", "line[@data-chosen]", "data-chosen", {craft.at("replicas_per_rank")});
  bool const ring = craft.at("knee") != craft.at("replicas_per_rank");
  marks(page, "curve", "circle[@data-knee]", "data-knee", ring ? row{craft.at("knee")} : row{});
  marks(page, "gains", "rect[@data-base]", "data-layer", ids.get<row>());
  marks(page, "gains", "rect[@data-base]", "data-base", base);
  marks(page, "gains", "rect[@data-gain]", "data-gain", all_gains);
  expect(page.select_nodes("//svg[@data-chart='gains']/circle").size() == with_replicas,
         "a dot for every layer with replicas");
  marks(page, "replicas", "rect", "data-layer", ids.get<row>());
  for (auto const& [chart, values] :
       {std::pair{std::string("replicas"), replicas}, {"expected-gain", gains}}) {
    auto const attribute = "data-" + chart;
    auto const bars = marks(page, chart, "rect", attribute.c_str(), values);
    double const top = *std::max_element(values.begin(), values.end());
    for (std::size_t i = 0; i < bars.size(); ++i) {
      double const height = top == 0 ? 0 : 110 * values[i] / top;
      expect(std::abs(number(bars[i], "height") - height) < 1e-2, "a bar as high as its value");
    }
  }
}

/// Returns the latency bars of a comparison.
std::map<place, double> latency_bars_of(json const& result, std::size_t comparison) {
  std::map<place, double> bars;
  json const& c = result.at("comparisons").at(comparison);
  add(bars, "b", result.at("layer_ids"), c.at("before").at("latency_us").at("of_ranks"));
  add(bars, "a", result.at("layer_ids"), c.at("after").at("latency_us").at("of_ranks"));
  return bars;
}

void check_latency_numbers(pugi::xml_node line, json const& latency) {
  auto const of_layers = latency.at("of_layers").get<row>();
  expect(std::abs(latency.at("mean").get<double>() - mean(of_layers)) <=
             1e-9 * latency.at("mean").get<double>(),
         "the mean of the layers' latencies");
  for (std::size_t layer = 0; layer < of_layers.size(); ++layer) {
    auto const of_ranks = latency.at("of_ranks").at(layer).get<row>();
    expect(of_layers[layer] * (1 + 1e-9) >= *std::max_element(of_ranks.begin(), of_ranks.end()),
           "a layer that waits for its slowest rank");
  }
  std::map<std::string, double> cells;
  for (pugi::xml_node const cell : line.children("td")) {
    for (pugi::xml_attribute const attribute : cell.attributes()) {
      cells[attribute.name()] = number(std::string_view(attribute.value()));
    }
  }
  expect(cells.at("data-mean") == latency.at("mean"), "mean latency in the table");
  expect(cells.at("data-ninety-fifth-percentile") == latency.at("ninety_fifth_percentile"),
         "95th percentile of latency in the table");
  expect(cells.at("data-worst") == latency.at("worst"), "worst latency in the table");
  expect(cells.at("data-worst-layer") == latency.at("worst_layer"), "the layer of that");
  expect(cells.at("data-worst-step") == latency.at("worst_step"), "the step of that");
}

/// Checks that the results of gem are consistent, and that the page shows them.
void check_gem(pugi::xml_document const& page, json const& result) {
  json const& gem = result.at("gem");
  if (gem.is_null()) {
    expect(page.select_nodes("//*[@data-chart='latency']").empty(), "no chart about latency");
    return;
  }
  auto const planned = gem.at("latency_us").get<row>();
  auto const bounds = gem.at("lower_bound_us").get<row>();
  expect(planned.size() == result.at("layer_ids").size() && bounds.size() == planned.size(),
         "a latency for every layer");
  for (std::size_t layer = 0; layer < planned.size(); ++layer) {
    expect(bounds[layer] <= planned[layer], "latencies above their bounds");
  }
  expect(std::abs(gem.at("mean_us").get<double>() - mean(planned)) <= 1e-9 * mean(planned),
         "the mean of the trace");
  for (std::size_t i = 0; i < result.at("comparisons").size(); ++i) {
    json const& comparison = result["comparisons"][i];
    auto const at = "//section[@id='latency-" + std::to_string(i) + "']";
    auto expected = latency_bars_of(result, i);
    std::map<place, double> lines;
    for (std::string const side : {"before", "after"}) {
      json const& latency = comparison.at(side).at("latency_us");
      auto const query = at + "//tr[@data-rows='latency' and @class='" + side + "']";
      check_latency_numbers(page.select_node(query.c_str()).node(), latency);
      std::vector<row> column;
      for (double const value : latency.at("of_layers")) {
        column.push_back({value});
      }
      add(lines, side.substr(0, 1), result["layer_ids"], column);
    }
    double full = 0;
    for (auto const& match_of : page.select_nodes((at + "//svg[@data-chart='latency']").c_str())) {
      pugi::xml_node const panel = match_of.node();
      expect(full == 0 || number(panel, "data-full") == full, "one scale for all panels");
      full = number(panel, "data-full");
      for (auto const& match_of_bar : panel.select_nodes(".//rect")) {
        pugi::xml_node const bar = match_of_bar.node();
        double const latency = number(bar, "data-latency");
        match(expected,
              {bar.attribute("class").value(), number(bar, "data-layer"), number(bar, "data-rank")},
              latency);
        expect(number(bar, "data-layer") == number(panel, "data-layer"), "a layer's bars");
        expect(std::abs(number(bar, "height") - 100 * latency / full) < 1e-3, "a bar's height");
      }
      for (auto const& match_of_line : panel.select_nodes(".//path")) {
        pugi::xml_node const line = match_of_line.node();
        double const latency = number(line, "data-of-layer");
        match(lines, {line.attribute("data-side").value(), number(panel, "data-layer"), 0},
              latency);
        std::string const d = line.attribute("d").value();
        auto const y = d.substr(d.find(' ') + 1, d.find('h') - d.find(' ') - 1);
        expect(std::abs(number(y) - 100 * latency / full) < 1e-3 && latency <= full,
               "a line's height");
      }
    }
    expect(expected.empty() && lines.empty(), "a bar and a line for every latency");
  }
}

/// Compares drawn lengths; a screen is precise to half a pixel at best.
void expect_pixels(double measured, double expected, std::string const& what) {
  expect(std::abs(measured - expected) <= std::max(0.5, 1e-3 * expected),
         what + " of " + std::to_string(expected) + " pixels, got " + std::to_string(measured));
}

void check_drawn(pugi::xml_document const& page, json const& result, json const& measured,
                 double width, bool dark) {
  expect(measured.at("dark") == dark, "the color scheme that was asked for");
  expect(measured.at("width") == width,
         "a page as wide as the window, got " + measured.at("width").dump());
  expect(measured.at("elements") == page.select_nodes("//*").size(),
         "the same elements read as HTML and as XML");
  expect(measured.at("overflow") == 0, "a page that is not wider than the window");
  expect(measured.at("texts") > 50, "text in the page");
  expect(measured.at("contrast") >= 4.5, "legible text, got contrast " +
                                             measured.at("contrast").dump() + " of '" +
                                             measured.at("faintest").get<std::string>() + "'");
  expect(measured.at("bar_contrast") >= 3, "bars that stand out from the page");
  expect(measured.at("font") >= 11, "letters of 11 pixels and more");

  json const& ids = result.at("layer_ids");
  std::map<double, double> pixels_per_load;
  for (json const& panel : measured.at("panels")) {
    double const layer = number(panel.at("layer").get<std::string>());
    double const pixels_of_mean =
        panel.at("height").get<double>() / number(panel.at("scale").get<std::string>());
    auto const at = std::find(ids.begin(), ids.end(), layer) - ids.begin();
    double const load =
        mean(result["comparisons"][0]["before"]["rank_loads"].at(static_cast<std::size_t>(at)));
    pixels_per_load[layer] = load == 0 ? 0 : pixels_of_mean / load;
    expect(panel.at("height") > 80, "panels that can be seen");
    expect(panel.at("line").is_null() == (load == 0),
           "a line at the mean load, where there is one");
    if (load > 0) {
      expect_pixels(panel.at("line"), pixels_of_mean, "a line at the height");
    }
  }
  expect(pixels_per_load.size() == ids.size(), "a panel for every layer");

  auto expected = bars_of(result);
  for (json const& bar : measured.at("bars")) {
    place const where{bar.at("side"), number(bar.at("layer").get<std::string>()),
                      number(bar.at("rank").get<std::string>())};
    double const load = number(bar.at("load").get<std::string>());
    match(expected, where, load);
    expect_pixels(bar.at("height"), load * pixels_per_load.at(std::get<1>(where)),
                  "a bar at " + text(where));
  }
  expect(expected.empty(), "a bar drawn for every value of rank_loads");

  if (!result.at("gem").is_null()) {
    std::vector<std::map<place, double>> of_comparisons;
    for (std::size_t i = 0; i < result["comparisons"].size(); ++i) {
      of_comparisons.push_back(latency_bars_of(result, i));
    }
    for (json const& bar : measured.at("latency_bars")) {
      auto const value = [&](char const* key) { return number(bar.at(key).get<std::string>()); };
      place const where{bar.at("side"), value("layer"), value("rank")};
      match(of_comparisons.at(static_cast<std::size_t>(value("comparison"))), where,
            value("latency"));
      expect(bar.at("panel") > 80, "panels that can be seen");
      expect_pixels(bar.at("height"),
                    value("latency") / value("full") * bar.at("panel").get<double>(),
                    "a latency at " + text(where));
    }
    for (auto const& bars : of_comparisons) {
      expect(bars.empty(), "a bar drawn for every latency");
    }
  }
}

void check(int count, char const* const* arguments) {
  pugi::xml_document page;
  auto const parsed = page.load_file(arguments[1], pugi::parse_default | pugi::parse_doctype);
  expect(bool(parsed), std::string("a page, got: ") + parsed.description());
  json const result = read_json(arguments[2]);
  check_bars(page, result);
  check_balancedness(page, result);
  check_table(page, result);
  check_craft(page, result);
  check_gem(page, result);
  if (count == 6) {
    check_drawn(page, result, read_json(arguments[3]), number(arguments[4]),
                std::string_view(arguments[5]) == "dark");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 6) {
    return 2;
  }
  try {
    check(argc, argv);
    std::puts(argc == 6 ? "as drawn: the same as the results"
                        : "as written: the same as the results");
  } catch (std::exception const& e) {
    std::fprintf(stderr, "check_report: not so: %s\n", e.what());
    return 1;
  }
}
