// SPDX-License-Identifier: Apache-2.0
/// @file
/// The placement file that docs/plan_experts.md describes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <span>
#include <vector>

#include "plan.hpp"

namespace examples {

namespace detail {

/// One row of the matrix a line, so that a person can find a layer and diff two plans.
inline void write_rows(std::ostream& out, char const* name, std::span<std::int32_t const> values,
                       index_t rows) {
  std::size_t const columns = values.size() / static_cast<std::size_t>(rows);
  out << ",\n" << nlohmann::json(name) << ": [";
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) {
    auto const cells = values.subspan(row * columns, columns);
    out << (row == 0 ? "\n" : ",\n")
        << nlohmann::json(std::vector<std::int32_t>(cells.begin(), cells.end()));
  }
  out << "\n]";
}

inline std::vector<std::int32_t> rank_offsets(plan const& p) {
  std::vector<std::int32_t> result;
  for (index_t layer = 0; layer < p.layers; ++layer) {
    for (index_t rank = 0; rank <= p.ranks; ++rank) {
      result.push_back(static_cast<std::int32_t>(rank * p.slots / p.ranks));
    }
  }
  return result;
}

}  // namespace detail

/// Writes `p` as JSON.
inline void write_json(std::ostream& out, plan const& p) {
  out << "{\n\"format\": \"plimsoll\",\n\"version\": 1";
  out << ",\n\"layers\": " << p.layers << ",\n\"experts\": " << p.experts;
  out << ",\n\"ranks\": " << p.ranks << ",\n\"slots\": " << p.slots;
  detail::write_rows(out, "physical_to_logical", p.physical_to_logical, p.layers);
  detail::write_rows(out, "rank_offsets", detail::rank_offsets(p), p.layers);
  detail::write_rows(out, "replica_count", p.replica_count, p.layers);
  out << "\n}\n";
}

}  // namespace examples
