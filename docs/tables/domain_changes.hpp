// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model whose workload changes from one recorded domain to the next, for tables of migrations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <plimsoll/array.hpp>
#include <plimsoll/execution.hpp>
#include <plimsoll/systems/eplb.hpp>
#include <plimsoll/types.hpp>
#include <plimsoll/views.hpp>

#include "traces.hpp"

namespace examples {

using plimsoll::index_t;

inline constexpr index_t domains = 10;
/// Ranks of the tables, each with as many extra slots. Nodes have 8 ranks.
inline constexpr index_t rank_counts[] = {8, 32, 64};
/// Tables of slow calls take one layer in this many.
inline constexpr index_t layer_stride = 15;

using seq_placement = plimsoll::placement<plimsoll::seq_policy>;

/// The loads of a domain and of the next one, `[layers, experts]`, and EPLB's plans for both.
struct domain_change {
  index_t ranks;
  index_t layers;
  index_t experts;
  std::vector<std::int64_t> after;
  seq_placement from;
  seq_placement to;

  [[nodiscard]] index_t slots() const { return experts + ranks; }
  [[nodiscard]] index_t nodes() const { return ranks / 8; }
  [[nodiscard]] plimsoll::matrix_ref<std::int64_t const> loads() const {
    return {after.data(), layers, experts};
  }
};

/// Returns the load of a domain in one layer in `stride`.
inline std::vector<std::int64_t> domain_loads(npy::array<std::int64_t> const& recorded,
                                              index_t domain, index_t stride) {
  index_t const parts = recorded.shape[0] / domains;
  index_t const experts = recorded.shape[2];
  std::vector<std::int64_t> result;
  for (index_t layer = stride / 2; layer < recorded.shape[1]; layer += stride) {
    for (index_t e = 0; e < experts; ++e) {
      std::int64_t sum = 0;
      for (index_t part = domain * parts; part < (domain + 1) * parts; ++part) {
        sum +=
            recorded
                .values[static_cast<std::size_t>((part * recorded.shape[1] + layer) * experts + e)];
      }
      result.push_back(sum);
    }
  }
  return result;
}

/// Returns the change from every domain to the next one, and from the last to the first.
inline std::vector<domain_change> domain_changes(npy::array<std::int64_t> const& recorded,
                                                 index_t ranks, index_t stride) {
  index_t const experts = recorded.shape[2];
  auto const plan = [&](std::vector<std::int64_t> const& loads) {
    return plimsoll::eplb(plimsoll::seq,
                          plimsoll::matrix_ref<std::int64_t const>(
                              loads.data(), std::ssize(loads) / experts, experts),
                          experts + ranks, {.on = {.ranks = ranks}});
  };
  std::vector<domain_change> result;
  for (index_t domain = 0; domain < domains; ++domain) {
    auto after = domain_loads(recorded, (domain + 1) % domains, stride);
    auto to = plan(after);
    auto from = plan(domain_loads(recorded, domain, stride));
    index_t const layers = std::ssize(after) / experts;
    result.push_back({ranks, layers, experts, std::move(after), std::move(from), std::move(to)});
  }
  return result;
}

inline npy::array<std::int64_t> recorded_domains(std::string const& folder) {
  return measured_counts(folder + "/glm-5.2-ten-domains/counts_by_chunk.npy", domains);
}

inline std::string ranks_cell(index_t ranks) {
  return std::to_string(ranks) + " + " + std::to_string(ranks);
}
/// Returns a number with `digits` behind the point.
inline std::string cell(double value, int digits) {
  char text[40];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

/// The main function of a table program: prints the header of the table, then `print(recorded,
/// ranks)` prints the rows of each number of ranks. Without traces the rows are those of the page.
template <class Print>
int make_table(std::string const& program, int argc, char** argv, char const* header, Print print) {
  return make_measured_table(program, argc, argv, header, [&](std::string const& folder) {
    auto const recorded = recorded_domains(folder);
    for (index_t const ranks : rank_counts) {
      print(recorded, ranks);
    }
  });
}

}  // namespace examples
