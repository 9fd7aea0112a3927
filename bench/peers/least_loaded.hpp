// SPDX-License-Identifier: Apache-2.0
// Planners to compare with least_loaded::plan: LLEP's planner, with the lists and dictionaries of
// the released code, and UltraEP's search for the lowest peak, on the host. Both are
// reimplementations; experts are placed in contiguous blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

namespace plimsoll_bench::peers {

struct spill {
  std::size_t rank;
  std::int64_t begin;
  std::int64_t end;
};
struct weight_transfer {
  std::size_t expert;
  std::size_t from;
  std::size_t to;
  std::int64_t begin;
  std::int64_t end;
};
/// A plan: a dictionary with a list of segments for every expert with tokens.
struct spill_lists {
  std::map<std::size_t, std::vector<spill>> segments;
  std::vector<weight_transfer> transfers;
  std::vector<std::int64_t> loads;  ///< [ranks]
};

/// Returns the numbers 0 to n - 1 sorted by value, the largest (or the smallest) first; ties by
/// number.
template <class Value>
std::vector<std::size_t> sorted_by(std::size_t n, bool largest_first, Value value) {
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return largest_first ? value(a) > value(b) : value(a) < value(b);
  });
  return order;
}

/// LLEP's planner. It sorts the helpers again after every chunk, but only once if the whole expert
/// leaves its rank.
class llep_lists {
 public:
  llep_lists(std::int32_t const* loads, std::size_t experts, std::size_t ranks)
      : loads_(loads), experts_(experts), ranks_(ranks), pending_(ranks, 0) {
    for (std::size_t e = 0; e < experts; ++e) {
      pending_[home(e)] += loads[e];
    }
  }

  spill_lists plan(double alpha, std::int64_t min_chunk, double lambda) {
    result_.loads.assign(ranks_, 0);
    std::int64_t const total = std::accumulate(pending_.begin(), pending_.end(), std::int64_t{0});
    std::int64_t const mean = total / static_cast<std::int64_t>(ranks_);
    auto const peak = static_cast<double>(*std::max_element(pending_.begin(), pending_.end()));
    bool const is_even = peak * static_cast<double>(ranks_) < lambda * static_cast<double>(total);
    min_chunk_ = min_chunk;
    capacity_ = mean == 0 ? total
                          : std::max<std::int64_t>(
                                1, static_cast<std::int64_t>(alpha * static_cast<double>(mean)));
    for (std::size_t const e :
         sorted_by(experts_, true, [this](std::size_t i) { return loads_[i]; })) {
      if (loads_[e] == 0) {
        continue;
      }
      pending_[home(e)] -= loads_[e];
      std::int64_t const room = is_even ? loads_[e] : room_of(home(e));
      std::int64_t const at_home = std::clamp<std::int64_t>(room, 0, loads_[e]);
      if (at_home > 0) {
        give(e, home(e), 0, at_home);
      }
      if (at_home < loads_[e]) {
        at_home > 0 ? spill_rest(e, at_home) : spill_all(e);
      }
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] std::size_t home(std::size_t e) const { return e * ranks_ / experts_; }
  [[nodiscard]] std::int64_t height(std::size_t r) const { return result_.loads[r] + pending_[r]; }
  [[nodiscard]] std::int64_t room_of(std::size_t r) const { return capacity_ - height(r); }

  [[nodiscard]] std::vector<std::size_t> helpers(std::size_t e) const {
    std::vector<std::size_t> others =
        sorted_by(ranks_, false, [this](std::size_t r) { return height(r); });
    others.erase(std::find(others.begin(), others.end(), home(e)));
    return others;
  }
  void give(std::size_t e, std::size_t r, std::int64_t begin, std::int64_t end) {
    result_.segments[e].push_back({r, begin, end});
    result_.loads[r] += end - begin;
    if (r != home(e)) {
      result_.transfers.push_back({e, home(e), r, begin, end});
    }
  }
  /// Returns the number of tokens that a helper takes; 0 if they are not worth a transfer.
  [[nodiscard]] std::int64_t chunk(std::size_t r, std::int64_t rest) const {
    std::int64_t const tokens = std::min(rest, room_of(r));
    return tokens > 0 && (tokens == rest || tokens >= min_chunk_) ? tokens : 0;
  }
  void spill_rest(std::size_t e, std::int64_t begin) {
    while (begin < loads_[e]) {
      std::vector<std::size_t> const others = helpers(e);
      auto const best = std::find_if(others.begin(), others.end(), [&](std::size_t r) {
        return chunk(r, loads_[e] - begin) > 0;
      });
      std::size_t const r = best == others.end() ? others.front() : *best;
      std::int64_t const end =
          best == others.end() ? loads_[e] : begin + chunk(r, loads_[e] - begin);
      give(e, r, begin, end);
      begin = end;
    }
  }
  void spill_all(std::size_t e) {
    std::vector<std::size_t> const others = helpers(e);
    std::int64_t begin = 0;
    for (std::size_t const r : others) {
      if (std::int64_t const tokens = chunk(r, loads_[e] - begin); tokens > 0) {
        give(e, r, begin, begin + tokens);
        begin += tokens;
      }
    }
    if (begin < loads_[e]) {
      give(e, others.front(), begin, loads_[e]);
    }
  }

  std::int32_t const* loads_;
  std::size_t experts_;
  std::size_t ranks_;
  std::int64_t capacity_ = 0;
  std::int64_t min_chunk_ = 1;
  std::vector<std::int64_t> pending_;  ///< [ranks]: tokens of experts not yet divided
  spill_lists result_;
};

/// UltraEP's search for the lowest level, to 1 %, at which every rank above it can send its excess
/// to the ranks with the most free capacity. A rank has `slots` slots for replicas, a replica takes
/// at least a chunk, and every expert keeps a token at home.
class ultra_ep_search {
 public:
  struct options {
    std::size_t slots = 2;
    std::int64_t min_chunk = 1024;
    double precision = 0.01;
  };
  /// A replica on a rank, and the tokens of the expert that it computes.
  struct replica {
    std::size_t expert;
    std::size_t rank;
    std::int64_t tokens;
  };
  struct plan {
    std::vector<replica> replicas;
    std::vector<std::int64_t> loads;  ///< [ranks]
  };

  ultra_ep_search(std::size_t experts, std::size_t ranks, options const& how)
      : experts_(experts), ranks_(ranks), how_(how) {}

  plan search(std::int32_t const* loads) {
    std::vector<std::int64_t> home(ranks_, 0);
    for (std::size_t e = 0; e < experts_; ++e) {
      home[e * ranks_ / experts_] += loads[e];
    }
    std::int64_t const total = std::accumulate(home.begin(), home.end(), std::int64_t{0});
    auto const n = static_cast<std::int64_t>(ranks_);
    std::int64_t low = (total + n - 1) / n;
    std::int64_t high = *std::max_element(home.begin(), home.end());
    plan best{{}, home};
    auto const gap = static_cast<std::int64_t>(how_.precision * static_cast<double>(low));
    while (high - low > gap) {
      std::int64_t const level = low + (high - low) / 2;
      plan tried{{}, home};
      if (reaches(level, loads, tried)) {
        best = std::move(tried);
        high = level;
      } else {
        low = level + 1;
      }
    }
    return best;
  }

 private:
  [[nodiscard]] bool reaches(std::int64_t level, std::int32_t const* loads, plan& tried) const {
    std::vector<std::int64_t> left(loads, loads + experts_);
    std::vector<std::size_t> used(ranks_, 0);
    std::vector<char> hosts(experts_ * ranks_, 0);
    std::size_t const per_rank = experts_ / ranks_;
    for (std::size_t const r :
         sorted_by(ranks_, true, [&tried](std::size_t i) { return tried.loads[i]; })) {
      if (tried.loads[r] <= level) {
        break;
      }
      for (std::size_t const i :
           sorted_by(per_rank, true, [&](std::size_t j) { return left[r * per_rank + j]; })) {
        std::size_t const e = r * per_rank + i;
        while (tried.loads[r] > level) {
          std::size_t to = ranks_;
          for (std::size_t o = 0; o < ranks_; ++o) {
            bool const may = o != r && used[o] < how_.slots && hosts[e * ranks_ + o] == 0;
            to = may && (to == ranks_ || tried.loads[o] < tried.loads[to]) ? o : to;
          }
          if (to == ranks_) {
            break;
          }
          // Sends a chunk even if the excess is smaller.
          std::int64_t const wanted = std::max(tried.loads[r] - level, how_.min_chunk);
          std::int64_t const tokens =
              std::min({wanted, level - tried.loads[to], left[e] - std::int64_t{1}});
          if (tokens < how_.min_chunk) {
            break;
          }
          tried.replicas.push_back({e, to, tokens});
          left[e] -= tokens;
          tried.loads[r] -= tokens;
          tried.loads[to] += tokens;
          ++used[to];
          hosts[e * ranks_ + to] = 1;
        }
      }
      if (tried.loads[r] > level) {
        return false;
      }
    }
    return true;
  }

  std::size_t experts_;
  std::size_t ranks_;
  options how_;
};

}  // namespace plimsoll_bench::peers
