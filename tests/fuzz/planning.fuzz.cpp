// SPDX-License-Identifier: Apache-2.0
// Whatever the shapes, options and loads, planning gives a legal plan or throws invalid_input.
#include <plimsoll/metrics.hpp>
#include <plimsoll/placement.hpp>
#include <plimsoll/refinement.hpp>
#include <plimsoll/replication.hpp>
#include <plimsoll/systems/eplb.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

using plimsoll::index_t;
using ints = std::vector<std::int32_t>;

/// Reads numbers off the input; zeros once it is used up.
class reader {
 public:
  reader(std::uint8_t const* data, std::size_t size) : data_(data), left_(size) {}

  template <class T>
  T take() {
    T value{};
    std::size_t const n = sizeof(T) < left_ ? sizeof(T) : left_;
    std::memcpy(&value, data_, n);
    data_ += n;
    left_ -= n;
    return value;
  }
  index_t between(index_t low, index_t high) {
    return low + take<std::uint8_t>() % (high - low + 1);
  }

 private:
  std::uint8_t const* data_;
  std::size_t left_;
};

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

/// `map` holds every expert as often as `counts` says.
void require_legal(ints const& map, ints const& counts, index_t layers, index_t experts,
                   index_t slots) {
  for (index_t layer = 0; layer < layers; ++layer) {
    ints seen(static_cast<std::size_t>(experts), 0);
    for (index_t slot = 0; slot < slots; ++slot) {
      std::int32_t const e = map[static_cast<std::size_t>(layer * slots + slot)];
      require(e >= -1 && e < experts);
      if (e >= 0) {
        ++seen[static_cast<std::size_t>(e)];
      }
    }
    require(ints(counts.begin() + layer * experts, counts.begin() + (layer + 1) * experts) == seen);
  }
}

void require_certified(std::vector<plimsoll::certificate> const& certificates, index_t layers) {
  require(static_cast<index_t>(certificates.size()) == layers);
  for (plimsoll::certificate const& c : certificates) {
    require(c.lower_bound >= 0 && c.lower_bound <= c.value && c.work >= 0);
  }
}

template <class T>
void plan(reader input) {
  index_t const layers = input.between(0, 3);
  index_t const experts = input.between(0, 12);
  index_t const slots = input.between(0, 24);
  index_t const ranks = input.between(-1, 9);
  std::vector<T> values(static_cast<std::size_t>(layers * experts));
  for (T& value : values) {
    // Mostly small numbers; now and then any bit pattern.
    value = input.take<std::uint8_t>() % 16 == 0 ? input.take<T>() : T(input.take<std::uint8_t>());
  }
  ints counts(values.size());
  ints map(static_cast<std::size_t>(layers * slots));
  plimsoll::matrix_ref<T const> const loads(values.data(), layers, experts);
  plimsoll::matrix_ref<std::int32_t> const counts_out(counts.data(), layers, experts);
  plimsoll::matrix_ref<std::int32_t> const map_out(map.data(), layers, slots);
  std::vector<std::uint8_t> active(static_cast<std::size_t>(ranks < 0 ? 0 : ranks), 1);
  std::vector<double> speeds(active.size(), 1.0);
  for (std::size_t r = 0; r < active.size(); ++r) {
    active[r] = input.take<std::uint8_t>() % 8 != 0;
    speeds[r] = input.take<std::uint8_t>() % 16 == 0 ? input.take<double>()
                                                     : 1 + input.take<std::uint8_t>() % 4;
  }
  plimsoll::placement_options where{.on = {.ranks = ranks, .nodes = input.between(0, 4)}};
  where.replica_anti_affinity = static_cast<plimsoll::anti_affinity>(input.between(0, 2));
  where.anti_affinity_strength = static_cast<plimsoll::strictness>(input.between(0, 1));
  if (input.between(0, 1) == 1) {
    where.on.active = {active.data(), static_cast<index_t>(active.size())};
  }
  if (input.between(0, 1) == 1) {
    where.on.speeds = {speeds.data(), static_cast<index_t>(speeds.size())};
  }
  bool planned = false;
  try {
    plimsoll::eplb_options options{.on = {.ranks = ranks, .nodes = where.on.nodes}};
    options.groups = input.between(0, 4);
    options.policy = static_cast<plimsoll::eplb_policy>(input.between(0, 2));
    options.refine = static_cast<plimsoll::eplb_refinement>(input.between(0, 2));
    options.on.active = where.on.active;
    options.on.speeds = where.on.speeds;
    options.replica_anti_affinity = where.replica_anti_affinity;
    options.anti_affinity_strength = where.anti_affinity_strength;
    auto const certificates = plimsoll::eplb(plimsoll::seq, loads, options, map_out, counts_out);
    require_certified(certificates, layers);
    require_legal(map, counts, layers, experts, slots);
    planned = true;
  } catch (plimsoll::invalid_input const&) {
  }
  try {
    // A plan, or what is left of one, with some slots changed.
    for (std::int32_t& expert : map) {
      if (input.take<std::uint8_t>() % (planned ? 16 : 2) == 1) {
        expert = input.take<std::int8_t>();
      }
    }
    plimsoll::refinement_options options;
    options.max_trials = input.between(0, 8);
    options.max_perturbations = input.between(0, 8);
    require_certified(plimsoll::refine(plimsoll::seq, loads, where, options, map_out, counts_out),
                      layers);
    require_legal(map, counts, layers, experts, slots);
  } catch (plimsoll::invalid_input const&) {
  }
  try {
    plimsoll::replication_options options;
    options.min_copies = input.take<std::int8_t>();
    options.max_copies = input.take<std::int8_t>();
    require_certified(plimsoll::replicate(plimsoll::seq, loads, slots, options, counts_out),
                      layers);
    for (std::int32_t const copies : counts) {
      require(copies >= options.min_copies && copies <= options.max_copies);
    }
  } catch (plimsoll::invalid_input const&) {
  }
  try {
    for (std::int32_t& copies : counts) {
      copies = static_cast<std::int32_t>(input.between(-1, 3));
    }
    ints offsets(static_cast<std::size_t>(ranks < 0 ? 0 : layers * (ranks + 1)));
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      bool const any = input.take<std::uint8_t>() % 8 == 0;
      auto const rank = static_cast<index_t>(i) % (ranks + 1);
      offsets[i] = any ? input.take<std::int8_t>()
                       : static_cast<std::int32_t>(ranks > 0 ? rank * slots / ranks : 0);
    }
    plimsoll::placement_options options = where;
    options.rank_offsets = plimsoll::matrix_ref<std::int32_t const>(
        offsets.empty() ? nullptr : offsets.data(), layers, ranks < 0 ? 0 : ranks + 1);
    auto const certificates = plimsoll::place(plimsoll::seq, loads, counts_out, options, map_out);
    require_certified(certificates, layers);
    require_legal(map, counts, layers, experts, slots);
  } catch (plimsoll::invalid_input const&) {
  }
  try {
    std::vector<plimsoll::balance_stats> rows(static_cast<std::size_t>(layers));
    plimsoll::measure(plimsoll::seq, loads, rows);
    auto const summary = plimsoll::summarize(plimsoll::seq, rows);
    require(summary.worst >= 0 && summary.worst <= 1 && summary.worst_row < layers);
  } catch (plimsoll::invalid_input const&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  reader input(data, size);
  switch (input.take<std::uint8_t>() % 3) {
    case 0:
      plan<std::int32_t>(input);
      break;
    case 1:
      plan<std::int64_t>(input);
      break;
    default:
      plan<double>(input);
  }
  return 0;
}
