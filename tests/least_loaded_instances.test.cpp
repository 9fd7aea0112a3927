// SPDX-License-Identifier: Apache-2.0
// Checks certificates of least_loaded against the best of all plans within the limits, in integers.
#include <doctest/doctest.h>
#include <plimsoll/least_loaded.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "support/draws.hpp"
#include "support/instances.hpp"

namespace plimsoll_test {

using plimsoll::certificate_status;
using plimsoll::index_t;

struct small_spill {
  plimsoll::least_loaded_options options;
  std::vector<std::int32_t> home_rank;
  std::vector<std::int64_t> units;  ///< speeds in 1/65536; 65536 for the fastest rank
  std::vector<std::int64_t> loads;

  [[nodiscard]] bool is_even() const {
    return std::all_of(units.begin(), units.end(), [](auto u) { return u == 65536; });
  }
  /// Returns the level of the tokens in 2^-16 tokens of a rank of speed 1, rounded up as levels
  /// are.
  [[nodiscard]] std::int64_t level(std::int64_t tokens, std::size_t r) const {
    return ((tokens << 32) + units[r] - 1) / units[r];
  }
};

/// Finds the lowest peak of all plans: it divides every expert's tokens over the ranks in all ways
/// within the limits.
class best_plan {
 public:
  explicit best_plan(small_spill const& c)
      : c_(c), load_(c.units.size(), 0), imports_(load_), exports_(load_) {
    place(0);
  }
  std::int64_t peak = std::numeric_limits<std::int64_t>::max();

 private:
  void place(std::size_t e) {
    if (e == c_.loads.size()) {
      std::int64_t highest = 0;
      for (std::size_t r = 0; r < load_.size(); ++r) {
        highest = std::max(highest, c_.level(load_[r], r));
      }
      peak = std::min(peak, highest);
    } else {
      divide(e, 0, c_.loads[e]);
    }
  }
  void divide(std::size_t e, std::size_t r, std::int64_t rest) {
    if (r == load_.size()) {
      if (rest == 0) {
        place(e + 1);
      }
      return;
    }
    auto const home = static_cast<std::size_t>(c_.home_rank[e]);
    for (std::int64_t part = 0; part <= rest; ++part) {
      bool const moves = part > 0 && r != home;
      bool const may =
          imports_[r] < c_.options.max_imports && exports_[home] < c_.options.max_exports;
      if (moves && !may) {
        break;
      }
      load_[r] += part;
      imports_[r] += moves ? 1 : 0;
      exports_[home] += moves ? 1 : 0;
      divide(e, r + 1, rest - part);
      load_[r] -= part;
      imports_[r] -= moves ? 1 : 0;
      exports_[home] -= moves ? 1 : 0;
    }
  }

  small_spill const& c_;
  std::vector<std::int64_t> load_;
  std::vector<std::int64_t> imports_;
  std::vector<std::int64_t> exports_;
};

TEST_CASE("least_loaded: no plan within the limits is below the bound, nor below an optimal one") {
  std::int64_t optimal = 0;
  std::int64_t limited = 0;
  for (std::int64_t seed = 0; seed < instances(2000); ++seed) {
    CAPTURE(seed);
    draws draw(static_cast<std::uint64_t>(seed));
    small_spill c;
    std::int64_t const ranks = draw.among(1, 3);
    std::int64_t const experts = draw.among(1, 3);
    c.options = {.on = {.ranks = ranks}, .experts = experts, .min_chunk = 1, .lambda = 0};
    c.options.max_imports = draw.any<index_t>({0, 1, 2, 65535});
    c.options.max_exports = draw.any<index_t>({0, 1, 2, 0x7fffffff});
    for (std::int64_t r = 0; r < ranks; ++r) {
      std::int64_t const slow = draw.any<std::int64_t>({1, 3, 100, 21845, 65535});
      c.units.push_back(draw.one_in(2) ? 65536 : slow);
    }
    c.units[static_cast<std::size_t>(draw.among(0, ranks - 1))] = 65536;
    for (std::int64_t e = 0; e < experts; ++e) {
      c.home_rank.push_back(draw.among(0, ranks - 1));
      c.loads.push_back(draw.among(0, 9));
    }
    std::vector<double> speeds;
    for (std::int64_t const unit : c.units) {
      speeds.push_back(static_cast<double>(unit) / 65536);
    }
    c.options.home_rank = c.home_rank;
    c.options.on.speeds = speeds;
    plimsoll::least_loaded planner(plimsoll::seq, c.options);
    planner.plan(c.loads);
    planner.check();
    plimsoll::validate(plimsoll::seq, planner.plan_ref(), c.loads, c.options);
    plimsoll::certificate const got = planner.report()->result;
    // Levels are below 2^53, so that this conversion is exact.
    double const best = static_cast<double>(best_plan(c).peak) / 65536;
    REQUIRE(got.lower_bound <= best);
    REQUIRE(got.value >= best);
    REQUIRE((got.status != certificate_status::optimal || got.value == best));
    optimal += got.status == certificate_status::optimal ? 1 : 0;
    limited += got.value > best ? 1 : 0;
  }
  CHECK(optimal > 0);
  CHECK(limited > 0);
}

}  // namespace plimsoll_test
