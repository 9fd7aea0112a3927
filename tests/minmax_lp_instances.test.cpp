// SPDX-License-Identifier: Apache-2.0
// Checks a thousand splits from the placement and the loads alone.
#include <doctest/doctest.h>
#include <plimsoll/minmax_lp.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "support/split_instances.hpp"

namespace plimsoll_test { namespace {

using plimsoll::certificate;
using plimsoll::certificate_status;

struct solved {
  std::vector<double> split;
  std::vector<std::uint8_t> bottleneck;
  certificate result;
};

solved solve(split_instance const& in, double tolerance) {
  solved out{std::vector<double>(in.phy2log.size()),
             std::vector<std::uint8_t>(static_cast<std::size_t>(in.ranks)),
             {}};
  plimsoll::minmax_lp lp(plimsoll::seq, in.placement(), {.tolerance = tolerance});
  lp.solve(plimsoll::matrix_ref<std::int64_t const>(in.loads.data(), 1, in.experts), {},
           plimsoll::matrix_ref<double>(out.split.data(), 1, in.slots()),
           {.bottleneck = plimsoll::matrix_ref<std::uint8_t>(out.bottleneck.data(), 1, in.ranks)});
  out.result = lp.certificates()[0];
  return out;
}

bool close(double a, double b) { return std::fabs(a - b) <= 1e-12 * std::fabs(b); }

/// Returns the load that only bottleneck ranks can take, over their number: a lower bound for every
/// peak.
double proven_bound(split_instance const& in, std::vector<std::uint8_t> const& bottleneck) {
  std::vector<bool> confined(in.loads.size(), true);
  std::int64_t count = 0;
  for (std::size_t r = 0; r < bottleneck.size(); ++r) {
    count += bottleneck[r];
    for (std::int32_t slot = in.rank_offsets[r]; slot < in.rank_offsets[r + 1]; ++slot) {
      if (std::int32_t const e = in.phy2log[static_cast<std::size_t>(slot)];
          e >= 0 && !bottleneck[r]) {
        confined[static_cast<std::size_t>(e)] = false;
      }
    }
  }
  std::int64_t load = 0;
  for (std::size_t e = 0; e < in.loads.size(); ++e) {
    load += confined[e] ? in.loads[e] : 0;
  }
  return count == 0 ? 0 : static_cast<double>(load) / static_cast<double>(count);
}

/// Checks that loads are conserved and that the certificate has the peak of the split: to the bit,
/// except for the rounding of several copies on one rank.
void check_split(split_instance const& in, solved const& got) {
  std::vector<double> given(in.loads.size(), 0.0);
  std::vector<bool> divided(in.loads.size(), false);
  double peak = 0;
  bool sound = true;
  bool any_divided = false;
  for (std::size_t r = 0; r + 1 < in.rank_offsets.size(); ++r) {
    std::vector<bool> here(in.loads.size(), false);
    double carried = 0;
    for (std::int32_t slot = in.rank_offsets[r]; slot < in.rank_offsets[r + 1]; ++slot) {
      double const part = got.split[static_cast<std::size_t>(slot)];
      std::int32_t const e = in.phy2log[static_cast<std::size_t>(slot)];
      sound = sound && (e < 0 ? part == 0 : part >= 0);
      carried += part;
      if (e >= 0) {
        auto const at = static_cast<std::size_t>(e);
        given[at] += part;
        divided[at] = divided[at] || here[at];
        any_divided = any_divided || here[at];
        here[at] = true;
      }
    }
    peak = std::fmax(peak, carried);
  }
  for (std::size_t e = 0; e < given.size(); ++e) {
    auto const load = static_cast<double>(in.loads[e]);
    sound = sound && (divided[e] ? close(given[e], load) : given[e] == load);
  }
  CHECK(sound);
  CHECK((any_divided ? close(got.result.value, peak) : got.result.value == peak));
  // With a tolerance, too, the bound is that of the bottleneck ranks.
  CHECK(close(got.result.lower_bound, proven_bound(in, got.bottleneck)));
  CHECK(got.result.value >= got.result.lower_bound);
}

TEST_CASE("minmax_lp: a thousand instances within 1e-6") {
  for (int i = 0; i < split_instance_count; ++i) {
    CAPTURE(i);
    split_instance const in = make_split_instance(i);
    solved const got = solve(in, 1e-6);
    CHECK((got.result.status == certificate_status::optimal ||
           got.result.status == certificate_status::within_tolerance));
    CHECK(got.result.gap() <= 1e-6);
    check_split(in, got);
  }
}

TEST_CASE("minmax_lp: a thousand instances, optimal") {
  for (int i = 0; i < split_instance_count; ++i) {
    CAPTURE(i);
    split_instance const in = make_split_instance(i);
    solved const got = solve(in, 0);
    CHECK(got.result.status == certificate_status::optimal);
    CHECK(close(got.result.value, proven_bound(in, got.bottleneck)));
    check_split(in, got);
  }
}

TEST_CASE("split_instances: a thousand different instances of all families") {
  CHECK_THROWS_AS(make_split_instance(split_instance_count), std::out_of_range);
  int next = 0;
  for (split_families::family const& family : split_families::all) {
    CAPTURE(family.name);
    split_instance const first = make_split_instance(next);
    split_instance const last = make_split_instance(next + family.instances - 1);
    CHECK(first.family == family.name);
    CHECK(last.family == family.name);
    CHECK((first.loads != last.loads || first.phy2log != last.phy2log));
    CHECK(first.phy2log == make_split_instance(next).phy2log);
    CHECK(first.loads == make_split_instance(next).loads);
    next += family.instances;
  }
  CHECK(next == split_instance_count);
}

}  // namespace
}  // namespace plimsoll_test
