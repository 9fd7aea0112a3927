// SPDX-License-Identifier: Apache-2.0
// Must come first; the header says why.
#include "support/device_forms.hpp"

#include "capacity_mask.cases.hpp"
#include "support/run_body.hpp"
#include "support/temporaries.hpp"

namespace plimsoll_test {

masked mask_on_host(mask_case const& c) { return mask_of<plimsoll::seq_policy>(c); }

TEST_CASE("capacity_mask: many random batches, against sorting") {
  fnv1a unused;
  for (std::uint64_t seed = 1000; seed < 1600; ++seed) {
    CAPTURE(seed);
    mask_case const c = random_mask(seed);
    check_mask(c, mask_on_host(c), unused);
  }
}

/// Draws a batch with binding capacities and without NaN.
inline mask_case tight_mask(std::uint64_t seed, drop_policy keep) {
  mask_case c = random_mask(seed);
  mask_draws draw(seed + 10000);
  capacity_options& o = c.options;
  o.factor = draw.any({0.5, 0.75, 1.0});
  o.min_tokens = 0;
  o.drop_by = keep;
  o.max_selected = 0;
  o.expert_drop = 0;
  c.factors.clear();
  c.sums_only = false;
  for (float& score : c.scores) {
    score = static_cast<float>(draw.among(1, 9)) / 16;
  }
  return c;
}

inline std::int64_t pool_capacity(mask_case const& c, index_t pool) {
  std::int64_t result = 0;
  for (index_t e = 0; e < c.options.experts; ++e) {
    result += pool_of(c, e) == pool ? capacity_of(c, e) : 0;
  }
  return result;
}

/// No pool keeps more pairs than its capacity, and none drops pairs below it.
TEST_CASE("capacity_mask: capacities hold, and no pair is dropped needlessly") {
  index_t above_own = 0;
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    CAPTURE(seed);
    for (drop_policy const keep : {drop_policy::score, drop_policy::random}) {
      mask_case const c = tight_mask(seed, keep);
      masked const got = mask_on_host(c);
      longs held(at(pools_of(c)), 0);
      longs wanted(at(pools_of(c)), 0);
      capacity_report counted;
      for (candidate const& x : candidates_in(c, counted)) {
        ++wanted[at(pool_of(c, x.expert))];
      }
      for (index_t e = 0; e < c.options.experts; ++e) {
        held[at(pool_of(c, e))] += got.counts[at(e)];
        above_own += got.counts[at(e)] > capacity_of(c, e);
        CHECK((c.options.ranks > 0 || got.counts[at(e)] <= capacity_of(c, e)));
      }
      for (index_t pool = 0; pool < pools_of(c); ++pool) {
        CHECK(held[at(pool)] == std::min(wanted[at(pool)], pool_capacity(c, pool)));
      }
      // One expert per rank is the same as no ranks.
      mask_case single = c;
      single.options.ranks = c.options.experts;
      single.options.pad = padding_mode::none;
      single.rank_of.clear();
      mask_case none = single;
      none.options.ranks = 0;
      CHECK(difference(mask_on_host(single), mask_on_host(none)) == "");
    }
  }
  CHECK(above_own > 0);  // an expert may use capacity that others of its rank leave unused
}

TEST_CASE("capacity_mask: no other pairs within the capacities have a larger sum of scores") {
  index_t bound = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    mask_case c = tight_mask(seed, drop_policy::score);
    c.options.order = plimsoll::candidate_order::together;
    c.options.classes = 1;
    c.priorities.clear();
    c.tokens = std::min(c.tokens, 10 / c.width());
    c.ids.resize(at(c.pairs()));
    c.scores.resize(at(c.pairs()));
    c.weights.clear();
    CAPTURE(seed);
    capacity_report counted;
    std::vector<candidate> const all = candidates_in(c, counted);
    longs room;
    for (index_t pool = 0; pool < pools_of(c); ++pool) {
      room.push_back(pool_capacity(c, pool));
    }
    float best = 0;
    for (unsigned set = 0; set < 1u << all.size(); ++set) {
      longs left = room;
      float sum = 0;
      bool fits = true;
      for (std::size_t i = 0; i < all.size(); ++i) {
        if ((set >> i & 1) != 0) {
          sum += c.scores[all[i].pair];
          fits = --left[at(pool_of(c, all[i].expert))] >= 0 && fits;
        }
      }
      best = fits ? std::max(best, sum) : best;
    }
    masked const got = mask_on_host(c);
    float sum = 0;
    for (std::size_t pair = 0; pair < c.scores.size(); ++pair) {
      sum += got.stays(pair) ? c.scores[pair] : 0;
    }
    CHECK(sum == best);
    bound += got.report.kept < got.report.routed;
  }
  CHECK(bound > 30);
}

/// The same top-k pairs are kept with and without expanded candidates.
TEST_CASE("capacity_mask: expanded candidates displace no top-k pair") {
  index_t displaced = 0;
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    CAPTURE(seed);
    mask_case c = random_mask(seed);
    c.sums_only = false;
    c.options.order = plimsoll::candidate_order::topk_first;
    c.options.drop_by = seed % 2 == 0 ? drop_policy::score : drop_policy::random;
    mask_case alone = c;
    alone.options.candidates = 0;
    alone.options.max_selected = std::min(c.options.max_selected, c.options.top_k);
    alone.ids.clear();
    alone.scores.clear();
    alone.weights.clear();
    for (index_t i = 0; i < c.tokens * c.options.top_k; ++i) {
      std::size_t const from = at(i / c.options.top_k, c.width(), i % c.options.top_k);
      alone.ids.push_back(c.ids[from]);
      alone.scores.push_back(c.scores[from]);
    }
    masked const got = mask_on_host(c);
    masked const expected = mask_on_host(alone);
    c.options.order = plimsoll::candidate_order::together;
    masked const literal = mask_on_host(c);
    bool same = true;
    for (index_t i = 0; i < c.tokens * c.options.top_k; ++i) {
      std::size_t const pair = at(i / c.options.top_k, c.width(), i % c.options.top_k);
      same = same && got.ids[pair] == expected.ids[at(i)] &&
             got.positions[pair] == expected.positions[at(i)];
      displaced += got.stays(pair) && !literal.stays(pair);
    }
    CHECK(same);
    CHECK(got.report.kept_choices == expected.report.kept);
    CHECK(got.report.choices == expected.report.routed);
  }
  CHECK(displaced > 0);
}

/// A pool that keeps a pair drops none of the same kind and a higher priority.
TEST_CASE("capacity_mask: priorities are strict") {
  index_t dropped = 0;
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    CAPTURE(seed);
    mask_case c = tight_mask(seed, seed % 3 == 0 ? drop_policy::order : drop_policy::score);
    mask_draws draw(seed);
    c.options.classes = seed % 2 == 0 ? 3 : 32768;
    c.priorities.clear();
    for (index_t t = 0; t < c.tokens; ++t) {
      c.priorities.push_back(
          draw.any<std::int32_t>({0, 1, static_cast<std::int32_t>(c.options.classes) - 1}));
    }
    bool const kinds = c.options.order == plimsoll::candidate_order::topk_first;
    masked const got = mask_on_host(c);
    ints lowest_kept(at(2 * pools_of(c)), 0x7fffffff);
    ints highest_gone(lowest_kept.size(), -1);
    capacity_report counted;
    for (candidate const& x : candidates_in(c, counted)) {
      std::size_t const i = at(2 * pool_of(c, x.expert) + (kinds && !x.is_choice ? 1 : 0));
      if (got.stays(x.pair)) {
        lowest_kept[i] = std::min(lowest_kept[i], x.priority);
      } else {
        highest_gone[i] = std::max(highest_gone[i], x.priority);
        ++dropped;
      }
    }
    bool strict = true;
    for (std::size_t i = 0; i < lowest_kept.size(); ++i) {
      strict = strict && lowest_kept[i] >= highest_gone[i];
    }
    CHECK(strict);
  }
  CHECK(dropped > 0);
}

TEST_CASE("capacity_mask: draws are uniform, and depend on the token's number") {
  // Every token chooses both experts, which keep a quarter of the pairs.
  constexpr index_t tokens = 32;
  constexpr index_t room = 8;
  mask_case c;
  c.options = {.experts = 2, .top_k = 2, .max_tokens = 2 * tokens, .max_capacity = room};
  c.options.drop_by = drop_policy::random;
  c.options.seed = 5;
  c.tokens = tokens;
  c.ids.assign(2 * tokens, 0);
  for (std::size_t i = 1; i < c.ids.size(); i += 2) {
    c.ids[i] = 1;
  }
  c.scores.assign(c.ids.size(), 1);
  constexpr int steps = 400;
  longs stayed(c.ids.size(), 0);
  for (int step = 0; step < steps; ++step) {
    c.stream = static_cast<std::uint64_t>(step);
    masked const got = mask_on_host(c);
    CHECK(got.counts == ints{room, room});
    for (std::size_t i = 0; i < stayed.size(); ++i) {
      stayed[i] += got.stays(i);
    }
  }
  double distance = 0;
  constexpr double expected = steps * room / static_cast<double>(tokens);
  for (std::int64_t const n : stayed) {
    distance += (static_cast<double>(n) - expected) * (static_cast<double>(n) - expected);
  }
  // Chi-squared with twice 31 degrees of freedom exceeds the bound once in a thousand times.
  distance /= expected * (1 - room / static_cast<double>(tokens)) * tokens / (tokens - 1.0);
  CHECK(distance < 102.2);

  c.stream = 1;
  masked const first = mask_on_host(c);
  CHECK(difference(mask_on_host(c), first) == "");
  mask_case other = c;
  other.stream = 2;
  CHECK(mask_on_host(other).ids != first.ids);
  other = c;
  other.options.seed = 6;
  CHECK(mask_on_host(other).ids != first.ids);
  index_t both = 0;
  for (index_t t = 0; t < tokens; ++t) {
    both += first.stays(at(t, 2, 0)) && first.stays(at(t, 2, 1));
  }
  CHECK(both < room);  // experts draw independently

  // A token's draws stay the same after as many tokens that are not routed, and in another order of
  // columns.
  mask_case late = c;
  late.first_token = 1000;
  ints expected_ids = mask_on_host(late).ids;
  CHECK(expected_ids != first.ids);
  mask_case behind = late;
  behind.first_token -= tokens;
  behind.tokens = 2 * tokens;
  behind.ids.assign(2 * c.ids.size(), -1);
  std::copy(c.ids.begin(), c.ids.end(),
            behind.ids.begin() + static_cast<std::ptrdiff_t>(c.ids.size()));
  behind.scores.assign(behind.ids.size(), 1);
  ints const got = mask_on_host(behind).ids;
  CHECK(ints(got.begin() + static_cast<std::ptrdiff_t>(c.ids.size()), got.end()) == expected_ids);
  for (std::size_t i = 0; i < late.ids.size(); i += 2) {
    std::swap(late.ids[i], late.ids[i + 1]);
    std::swap(expected_ids[i], expected_ids[i + 1]);
  }
  CHECK(mask_on_host(late).ids == expected_ids);
}

/// All steps of a batch, as `apply` enqueues them on a device (`adding`) or on a host, with access
/// to their arrays.
class mask_steps {
 public:
  mask_steps(mask_case const& c, bool adding) : c_(c) {
    order_experts();
    lists_.experts = c.options.experts;
    lists_.width = c.width();
    lists_.by_width = plimsoll::detail::divisor(c.width());
    lists_.choices = c.options.top_k;
    lists_.pools = pools_of(c);
    lists_.by_rank = c.options.ranks > 0;
    if (!c.rank_of.empty()) {
      lists_.positions_of = places_.data();
      lists_.experts_at = experts_at_.data();
      lists_.pool_begins = pool_begins_.data();
    }
    if (adding) {
      std::fill(groups_.begin(), groups_.end(), 0);
      std::fill(counts_.begin(), counts_.end() - 1, 0);
    }
    lists_.tiles = {c.pairs(), all_columns(), adding, groups_.data(), counts_.data()};
    lists_.first = first_.data();
    lists_.columns = columns_.data();
    lists_.keys = keys_.data();
    lists_.listed = listed_.data();
    lists_.ranks = ranks_.data();
    lists_.kept = kept_.data();
    lists_.left_out = c.options.expert_drop > 0 ? left_out_.data() : nullptr;
    lists_.kept_choices = kept_choices_.data();
    lists_.begins = begins_.data();
    overflows_.resize(at(lists_.pools));
    lists_.overflows = overflows_.data();
    lists_.not_numbers = odd_.data();
    lists_.unknown_class = odd_.data() + 1;
  }

  /// Checks every step in every team, and the outputs.
  void check() {
    using namespace plimsoll::detail;
    capacity_options const& o = c_.options;
    plimsoll::matrix_ref<float const> const scores(c_.scores.data(), c_.tokens, c_.width());
    plimsoll::matrix_ref<std::int32_t const> const ids(ids_.data(), c_.tokens, c_.width());
    capacity_rule const rule{.factor = o.factor,
                             .factors = nullptr,
                             .round = o.round,
                             .least = o.min_capacity,
                             .most = o.max_capacity,
                             .tokens = c_.tokens,
                             .choices = o.top_k,
                             .experts = o.experts,
                             .unlimited = false};

    count_pairs_body<std::int32_t> count{};
    count.lists = lists_;
    count.ids = ids;
    check_step(count, count.problems(), counts_, groups_, columns_, kept_);
    if (lists_.tiles.scanned()) {
      scan_pairs_body const scan{lists_.tiles};
      check_step(scan, scan.problems(), counts_, groups_);
    }

    if (o.expert_drop > 0) {
      auto const fewest = static_cast<index_t>(o.expert_drop * static_cast<double>(o.experts));
      check_step(rank_experts_body{lists_, fewest}, o.experts, left_out_);
    }

    gather_pairs_body<float> gather{};
    gather.lists = lists_;
    gather.scores = scores;
    gather.drop_by = o.drop_by;
    gather.choices_first =
        (o.order == plimsoll::candidate_order::topk_first) && c_.width() > o.top_k;
    gather.classes = o.classes;
    if (!c_.priorities.empty()) {
      gather.class_bits = bit_width(static_cast<std::uint64_t>(o.classes - 1));
      gather.priorities = {c_.priorities.data(), c_.tokens};
    }
    gather.seed = o.seed;
    gather.subsequence = c_.stream;
    gather.first_token = c_.first_token;
    check_step(gather, gather.problems(), first_, listed_, keys_, odd_);

    bool const cuts = o.max_selected > 0;
    select_pairs_body select{};
    select.lists = lists_;
    select.rule = rule;
    select.numbering = !cuts;
    select.counts = {kept_counts_.data(), o.experts};
    select.positions = {positions_.data(), c_.tokens, c_.width()};
    check_step(select, lists_.pools, kept_, keys_, ranks_, kept_counts_, positions_, kept_choices_);

    keep_pairs_body<std::int32_t, float> keep{};
    keep.lists = lists_;
    keep.ids = ids;
    keep.scores = scores;
    keep.max_selected = o.max_selected;
    keep.choices_first = gather.choices_first;
    keep.normalize = o.normalize;
    keep.sentinel = o.sentinel;
    keep.kept_ids = {kept_ids_.data(), c_.tokens, c_.width()};
    keep.kept_weights = {weights_.data(), c_.tokens, c_.width()};
    keep.positions = select.positions;
    keep.counts = select.counts;

    std::vector<capacity_report> report(1);
    report_pairs_body sums{};
    sums.lists = lists_;
    sums.rule = rule;
    sums.padding = {o.pad, o.multiple, o.min_rows};
    sums.counts = select.counts;
    sums.offsets = {offsets_.data(), o.experts + 1};
    sums.reports = {report.data(), 1};
    auto const reported = [&] {
      longs values = numbers_in(report[0]);
      words bits = bits_of(floats{static_cast<float>(report[0].dropped_fraction),
                                  static_cast<float>(report[0].overflow_fraction)});
      values.insert(values.end(), bits.begin(), bits.end());
      return values;
    };
    if (cuts) {
      check_step(keep, keep.problems(), kept_, kept_ids_, weights_, positions_, kept_counts_,
                 kept_choices_, counts_, groups_);
      with_report<number_pairs_body> const last{{lists_, select.positions}, sums};
      check_step(last, last.problems(), ranks_, positions_, offsets_, begins_, odd_, reported);
    } else {
      with_report<keep_pairs_body<std::int32_t, float>> const last{keep, sums};
      check_step(last, last.problems(), kept_, kept_ids_, weights_, positions_, counts_, groups_,
                 offsets_, begins_, odd_, reported);
    }

    check_same({kept_ids_, bits_of(weights_), positions_, kept_counts_, offsets_, report[0]},
               mask_by_sorting(c_));
    CHECK(counts_.back() == untouched);  // after the last count
    // Ready for the next batch.
    CHECK(odd_ == ints{0, 0});
    if (lists_.tiles.adding) {
      CHECK(std::count(groups_.begin(), groups_.end(), 0) == std::ssize(groups_));
      CHECK(std::count(counts_.begin(), counts_.end(), 0) == std::ssize(counts_) - 1);
    }
  }

 private:
  /// Stops at the first wrong step, since later ones would be wrong too.
  template <class Body, class... Outputs>
  static void check_step(Body const& body, index_t problems, Outputs&&... outputs) {
    REQUIRE(compare_all_teams(body, problems, outputs...) == "");
  }
  void order_experts() {
    for (std::int32_t rank = 0; rank <= c_.options.ranks && !c_.rank_of.empty(); ++rank) {
      pool_begins_.push_back(static_cast<std::int32_t>(experts_at_.size()));
      for (std::size_t e = 0; e < c_.rank_of.size(); ++e) {
        if (c_.rank_of[e] == rank) {
          places_[e] = static_cast<std::int32_t>(experts_at_.size());
          experts_at_.push_back(static_cast<std::int32_t>(e));
        }
      }
    }
  }
  [[nodiscard]] index_t all_columns() const {
    return c_.options.experts * (c_.width() > c_.options.top_k ? 2 : 1) + 3;
  }

  mask_case c_;
  plimsoll::detail::pair_lists lists_{};
  std::size_t const pairs_ = at(c_.pairs());
  std::size_t const experts_ = at(c_.options.experts);
  ints ids_ = ints(c_.ids.begin(), c_.ids.end());
  ints places_ = ints(experts_);
  ints experts_at_;
  ints pool_begins_;
  ints groups_ = ints(at(all_columns()), untouched);
  ints counts_ = ints(at((c_.pairs() + 511) / 512 * all_columns() + 1), untouched);
  ints first_ = ints(at(all_columns() + 1), untouched);
  ints columns_ = ints(pairs_, untouched);
  std::vector<std::uint64_t> keys_ = std::vector<std::uint64_t>(pairs_);
  ints listed_ = ints(pairs_, untouched);
  ints ranks_ = ints(pairs_, untouched);
  std::vector<std::uint8_t> kept_ = std::vector<std::uint8_t>(pairs_, 7);
  std::vector<std::uint8_t> left_out_ = std::vector<std::uint8_t>(experts_, 7);
  ints kept_choices_ = ints(experts_, untouched);
  ints begins_ = ints(experts_, untouched);
  std::vector<double> overflows_;
  ints odd_ = ints(2, 0);
  ints kept_ids_ = ints(pairs_, untouched);
  floats weights_ = floats(pairs_, 7);
  ints positions_ = ints(pairs_, untouched);
  ints kept_counts_ = ints(experts_, untouched);
  ints offsets_ = ints(experts_ + 1, untouched);
};

inline void check_steps(mask_case const& c) {
  mask_steps(c, true).check();
  mask_steps(c, false).check();
}

TEST_CASE("capacity_mask: the same bits in every team") {
  // Two tiles; a rank with all experts and one without; priorities, expanded candidates, ties.
  mask_case c = large_mask(11, 100, 2, 2, 4);
  c.options.ranks = 2;
  c.rank_of = {1, 1};
  c.options.classes = 3;
  c.options.factor = 0.5;
  c.options.normalize = normalization::to_one;
  c.options.pad = padding_mode::to_multiple;
  c.options.multiple = 4;
  mask_draws draw(12);
  for (index_t t = 0; t < c.tokens; ++t) {
    c.priorities.push_back(draw.among(-1, 2));
  }
  check_steps(c);
  // A capacity per expert; one expert is skipped; a limit per token.
  mask_case experts = large_mask(13, 60, 2, 1, 1);
  experts.options.factor = 0.4;
  experts.options.expert_drop = 0.5;
  experts.options.max_selected = 1;
  experts.options.drop_by = drop_policy::random;
  experts.options.order = plimsoll::candidate_order::together;
  check_steps(experts);
  check_steps(large_mask(14, 0, 1, 1, 0));
}

/// Counts the launches of a batch as on a device, which must leave the object ready for the next.
inline int launches_of(mask_case const& c) {
  mask_in<plimsoll::seq_policy> const in(c);
  plimsoll::capacity_mask mask(device_forms{}, in.options());
  masked const expected = mask_by_sorting(c);
  check_same(in.run(mask), expected);
  device_forms_context::launches = 0;
  check_same(in.run(mask), expected);
  return device_forms_context::launches;
}

TEST_CASE("capacity_mask: the launches of a device") {
  for (std::uint64_t seed = 2000; seed < 2300; ++seed) {
    CAPTURE(seed);
    mask_case const c = random_mask(seed);
    capacity_options const& o = c.options;
    bool const left_out =
        c.tokens >= o.min_tokens && o.expert_drop * static_cast<double>(o.experts) >= 1;
    bool const cuts = o.max_selected > 0 && o.max_selected < c.width();
    int const of_pairs = c.tokens > 0 ? 1 : 0;
    CHECK(launches_of(c) == 3 + of_pairs + (left_out ? 1 : 0) + (cuts && of_pairs > 0 ? 1 : 0));
  }
  // Tiles of 512 pairs, groups of 16.
  for (index_t const pairs : {1, 511, 512, 513, 8191, 8192, 8193, 20000}) {
    CAPTURE(pairs);
    CHECK(launches_of(large_mask(61, pairs, 9, 1, 0)) == 4);
    CHECK(launches_of(large_mask(62, pairs / 3, 30, 2, 1)) == (pairs < 3 ? 3 : 4));
  }
  CHECK(launches_of(large_mask(63, 700, 3000, 6, 2)) == 4);
  CHECK(launches_of(large_mask(64, 65536, 20, 6, 2)) == 4);
  CHECK(launches_of(large_mask(65, 65537, 20, 6, 2)) == 5);
}

/// Selects the largest keys of a row.
struct select_body {
  using device_team = plimsoll::detail::block<128>;

  index_t n;
  int bits;
  index_t wanted;
  std::uint64_t const* keys;     ///< [problems, n]
  std::uint8_t const* eligible;  ///< the same
  std::uint8_t* taken;           ///< the same: 1 above the threshold, 2 at it
  std::uint64_t* numbers;        ///< [problems, 4]

  [[nodiscard]] std::size_t scratch_bytes() const {
    return plimsoll::detail::bytes_taken_by<plimsoll::detail::radix_arrays>();
  }
  template <class Team>
  void operator()(Team& team, plimsoll::detail::scratch memory, index_t problem) const {
    std::uint64_t const* const row = keys + problem * n;
    std::uint8_t const* const may = eligible + problem * n;
    auto const best = plimsoll::detail::radix_select(
        team, memory, n, wanted, bits, [=](index_t i) { return row[i]; },
        [=](index_t i) { return may[i] != 0; });
    team.for_each(n, [=, this](index_t i) {
      taken[problem * n + i] = static_cast<std::uint8_t>(may[i] == 0 || !best.has(row[i]) ? 0
                                                         : best.is_last(row[i])           ? 2
                                                                                          : 1);
    });
    team.single([=, this] {
      std::uint64_t* const out = numbers + 4 * problem;
      out[0] = best.prefix;
      out[1] = static_cast<std::uint64_t>(best.shift);
      out[2] = static_cast<std::uint64_t>(best.taken);
      out[3] = best.complete;
    });
  }
};

TEST_CASE("capacity_mask: radix_select finds the largest keys") {
  generator random(21);
  for (int const bits : {1, 5, 8, 9, 32, 33, 48, 64}) {
    for (index_t const n : {1, 2, 40}) {
      // Rows whose keys differ in any bit, in the last three, in the first two, or in one.
      constexpr index_t rows = 4;
      std::uint64_t const all = ~std::uint64_t{0} >> (64 - bits);
      std::uint64_t const masks[rows] = {all, 7, all - all / 4, std::uint64_t{1} << (bits / 2)};
      std::vector<std::uint64_t> keys;
      std::vector<std::uint8_t> eligible;
      for (std::uint64_t const mask : masks) {
        std::uint64_t const base = random.bits();
        for (index_t i = 0; i < n; ++i) {
          keys.push_back(((random.bits() & mask) | (base & ~mask)) & all);
          eligible.push_back(i == 0 || random.between(0, 3) > 0);
        }
      }
      index_t least = n;  // eligible keys of a row
      for (index_t r = 0; r < rows; ++r) {
        least = std::min<index_t>(
            least, std::count(eligible.begin() + r * n, eligible.begin() + (r + 1) * n, 1));
      }
      for (index_t const wanted : {index_t{1}, (least + 1) / 2, least}) {
        CAPTURE(bits);
        CAPTURE(n);
        CAPTURE(wanted);
        std::vector<std::uint8_t> taken(keys.size(), 7);
        std::vector<std::uint64_t> numbers(4 * rows);
        select_body const body{
            n, bits, wanted, keys.data(), eligible.data(), taken.data(), numbers.data()};
        if (bits == 64 && wanted > 1 && wanted < least) {
          check_all_teams(body, rows, taken, numbers);
        } else {
          run_body(body, rows, serial, 1);
        }
        for (index_t r = 0; r < rows; ++r) {
          CAPTURE(r);
          std::vector<std::uint64_t> sorted;
          index_t above = 0;
          index_t equal = 0;
          std::uint64_t least_taken = all;
          for (std::size_t i = at(r * n); i < at((r + 1) * n); ++i) {
            if (eligible[i] != 0) {
              sorted.push_back(keys[i]);
            }
            above += taken[i] == 1;
            equal += taken[i] == 2;
            least_taken = taken[i] != 0 ? std::min(least_taken, keys[i]) : least_taken;
          }
          std::sort(sorted.rbegin(), sorted.rend());
          auto const some = static_cast<index_t>(numbers[at(4 * r + 2)]);
          bool const complete = numbers[at(4 * r + 3)] != 0;
          CHECK(least_taken == sorted[at(wanted - 1)]);
          CHECK(above + some == wanted);
          CHECK((complete ? equal == some : equal > some));
          // If not all keys at the threshold are taken, they are one key.
          CHECK((complete || numbers[at(4 * r)] == least_taken));
          CHECK((complete || numbers[at(4 * r + 1)] == 0));
        }
      }
    }
  }
}

TEST_CASE("capacity_mask: applying allocates nothing") {
  mask_case c = large_mask(31, 150, 6, 2, 2);
  c.options.ranks = 2;
  c.rank_of = {0, 1, 0, 1, 1, 1};
  c.factors = reals(6, 0.5);
  c.options.expert_drop = 0.2;
  c.options.max_selected = 1;
  mask_in<plimsoll::seq_policy> const in(c);
  masked const expected = mask_by_sorting(c);
  auto const run = [&](auto& resource) {
    plimsoll::capacity_mask mask(plimsoll::seq(resource), in.options());
    auto const before = resource.allocations();
    check_same(in.run(mask), expected);
    CHECK(resource.allocations() == before);
  };
  // Factors; places, experts and first places of ranks; lists, and scratch memory.
  check_temporaries(6, run);
  c.rank_of.clear();
  c.factors.clear();
  mask_in<plimsoll::seq_policy> const plain(c);
  check_temporaries(2, [&](auto& resource) {
    plimsoll::capacity_mask mask(plimsoll::seq(resource), plain.options());
  });
}

TEST_CASE("capacity_mask: capacity(tokens)") {
  capacity_options o{.experts = 8, .top_k = 2, .max_tokens = 100};
  auto const capacity = [&](index_t tokens) {
    return plimsoll::capacity_mask(plimsoll::seq, o).capacity(tokens);
  };
  CHECK(capacity(0) == 0);
  CHECK(capacity(1) == 1);
  CHECK(capacity(64) == 16);
  CHECK(capacity(65) == 17);
  o.factor = 1.25;
  CHECK(capacity(64) == 20);
  CHECK(capacity(3) == 1);
  CHECK(capacity(4) == 2);
  o.round = rounding_mode::down;
  CHECK(capacity(4) == 1);
  CHECK(capacity(65) == 20);
  o.min_capacity = 30;
  CHECK(capacity(64) == 30);
  CHECK(capacity(20) == 20);
  o.min_capacity = 0;
  CHECK(capacity(3) == 0);
  o.max_capacity = 18;
  CHECK(capacity(64) == 18);
  o.min_tokens = 64;
  CHECK(capacity(63) == 63);
  CHECK(capacity(64) == 18);
  o.factor = std::numeric_limits<double>::infinity();
  o.max_capacity = 0x7fffffff;
  CHECK(capacity(0) == 0);
  CHECK(capacity(100) == 100);
  o.factor = 0;
  CHECK(capacity(100) == 0);
  // The largest of all experts.
  reals const factors{0, 0.5, 0, 2, 1, 0, 0, 0};
  o.factors = {factors.data(), 8};
  CHECK(capacity(64) == 32);
  plimsoll::capacity_mask mask(plimsoll::seq, o);
  CHECK(mask.options().candidates == 2);
  CHECK(mask.options().factors.data == factors.data());
}

TEST_CASE("capacity_mask: the last bits of a factor do not matter") {
  // In double 1.1 * 3000 / 100 is more than 33, and 0.29 * 100 less than 29.
  capacity_options o{.experts = 100, .top_k = 3, .max_tokens = 1000, .factor = 1.1};
  CHECK(plimsoll::capacity_mask(plimsoll::seq, o).capacity(1000) == 33);
  o.factor = 1.1001;
  CHECK(plimsoll::capacity_mask(plimsoll::seq, o).capacity(1000) == 34);

  o = {.experts = 100, .top_k = 1, .max_tokens = 100, .expert_drop = 0.29};
  ints ids(100);
  std::iota(ids.begin(), ids.end(), 0);
  floats const scores(100, 1.0f);
  ints counts(100);
  capacity_report report;
  plimsoll::capacity_mask(plimsoll::seq, o)
      .apply(plimsoll::matrix_ref<std::int32_t const>(ids.data(), 100, 1),
             plimsoll::matrix_ref<float const>(scores.data(), 100, 1),
             {.counts = counts, .report = report});
  CHECK(report.kept == 71);
  CHECK(counts[70] == 1);
  CHECK(counts[71] == 0);
}

TEST_CASE("capacity_mask: the constructor reads views with strides") {
  // Eight tokens choose expert 0, the next eight expert 1.
  ints const ids{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  floats const scores(16, 1.0f);
  auto const kept = [&](capacity_options const& o) {
    ints counts(2);
    capacity_report report;
    plimsoll::capacity_mask(plimsoll::seq, o)
        .apply(plimsoll::matrix_ref<std::int32_t const>(ids.data(), 16, 1),
               plimsoll::matrix_ref<float const>(scores.data(), 16, 1),
               {.counts = counts, .report = report});
    return counts;
  };
  reals const factors{0.25, 9, 0.75, 9};
  capacity_options o{.experts = 2, .top_k = 1, .max_tokens = 16};
  o.factors = {factors.data(), 2};
  o.factors.strides[0] = 2;
  CHECK(kept(o) == ints{2, 6});
  o.factors.data += 2;
  o.factors.strides[0] = -2;
  CHECK(kept(o) == ints{6, 2});
  o.factors.strides[0] = 0;
  CHECK(kept(o) == ints{6, 6});

  // Both experts on rank 1 share its capacity, and the tokens of expert 0 rank first.
  ints const ranks{1, 0, 1, 0};
  o = {.experts = 2, .top_k = 1, .max_tokens = 16, .factor = 0.5, .ranks = 2};
  o.rank_of = {ranks.data(), 2};
  CHECK(kept(o) == ints{4, 4});
  o.rank_of.strides[0] = 2;
  CHECK(kept(o) == ints{8, 0});
}

TEST_CASE("capacity_mask: rows of a buffer are counted in 32 bits") {
  ints const ids(4, 0);
  floats const scores(4, 0);
  ints counts(3);
  ints offsets(4);
  std::vector<capacity_report> report(1);
  auto const message = [&](capacity_options const& o, index_t tokens) {
    plimsoll::capacity_mask mask(plimsoll::seq, o);
    return refusal_of([&] {
      // Shapes are checked before anything is read.
      mask.apply(plimsoll::matrix_ref<std::int32_t const>(ids.data(), tokens, 1),
                 plimsoll::matrix_ref<float const>(scores.data(), tokens, 1),
                 {.counts = {counts.data(), o.experts},
                  .offsets = {offsets.data(), o.experts + 1},
                  .report = report});
    });
  };
  capacity_options o{.experts = 3, .top_k = 1, .max_tokens = 4};
  o.pad = padding_mode::to_multiple;
  o.multiple = 715827882;  // 3 (multiple - 1) is 2^31 - 5
  CHECK(message(o, 4) == "no error");
  o.multiple = 715827883;
  CHECK(message(o, 2) ==
        "capacity_mask::apply: kept.offsets: expected 0 to 2147483647 rows with "
        "padding, got 2147483648");
  o = {.experts = 8192, .top_k = 1, .max_tokens = 1 << 18, .factor = 8192};
  o.pad = padding_mode::to_capacity;
  CHECK(message(o, 1 << 18) ==
        "capacity_mask::apply: kept.offsets: expected 0 to 2147483647 rows with padding, got "
        "2147483648");
}

TEST_CASE("capacity_mask: rows of a buffer, whatever the batch") {
  auto const rows = [](capacity_options o, index_t tokens) {
    o.experts = 4;
    o.top_k = 1;
    o.max_tokens = 64;
    plimsoll::capacity_mask mask(plimsoll::seq, o);
    // All tokens choose expert 1.
    ints const ids(static_cast<std::size_t>(tokens), 1);
    floats const scores(static_cast<std::size_t>(tokens), 1.0f);
    ints counts(4), offsets(5);
    std::vector<plimsoll::capacity_report> report(1);
    mask.apply(plimsoll::matrix_ref<std::int32_t const>(ids.data(), tokens, 1),
               plimsoll::matrix_ref<float const>(scores.data(), tokens, 1),
               {.counts = {counts.data(), 4}, .offsets = {offsets.data(), 5}, .report = report});
    CHECK(report[0].rows == offsets[4]);
    CHECK(offsets[4] <= mask.max_rows(tokens));
    for (std::size_t e = 0; e < 4; ++e) {
      CHECK(counts[e] <= offsets[e + 1] - offsets[e]);
      CHECK(counts[e] <= mask.capacity(tokens));
    }
    return ints{offsets[1], offsets[2] - offsets[1]};
  };
  // Buffers of one size, also for batches with fewer tokens than it has rows, or none.
  capacity_options fixed{.min_capacity = 8, .max_capacity = 8};
  fixed.pad = padding_mode::to_capacity;
  for (index_t const tokens : {0, 1, 4, 8, 9, 64}) {
    CHECK(rows(fixed, tokens) == ints{8, 8});
  }
  fixed.min_tokens = 16;  // unlimited below, so that the buffer holds all tokens
  CHECK(rows(fixed, 4) == ints{8, 8});
  CHECK(rows(fixed, 12) == ints{12, 12});
  capacity_options wide{.factor = 8};
  wide.pad = padding_mode::to_capacity;
  CHECK(rows(wide, 3) == ints{6, 6});
  wide.min_rows = 7;
  CHECK(rows(wide, 3) == ints{7, 7});
  // One padded block at least.
  capacity_options blocks{.factor = 4};
  blocks.pad = padding_mode::to_multiple;
  blocks.multiple = 16;
  CHECK(rows(blocks, 3) == ints{0, 16});
  blocks.min_rows = 1;
  CHECK(rows(blocks, 3) == ints{16, 16});
  CHECK(rows(blocks, 17) == ints{16, 32});
  blocks.pad = padding_mode::none;
  CHECK(rows(blocks, 3) == ints{1, 3});
}

}  // namespace plimsoll_test
