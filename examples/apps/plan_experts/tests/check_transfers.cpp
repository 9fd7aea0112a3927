// SPDX-License-Identifier: Apache-2.0
// check_transfers OLD.json NEW.json TRANSFERS.json
// Plays the transfers round by round: they must lead from one placement file to the other, and
// their totals must be those of the files. Uses nothing of the library, so that it cannot share an
// error with it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using nlohmann::json;
using row = std::vector<int>;

void expect(bool good, std::string const& what) {
  if (!good) {
    throw std::runtime_error(what);
  }
}

int rank_of(row const& offsets, int slot) {
  auto const end = std::upper_bound(offsets.begin(), offsets.end(), slot);
  return static_cast<int>(end - offsets.begin()) - 1;
}

std::size_t index(json const& value) { return value.get<std::size_t>(); }

/// One layer while its transfers are played.
struct layer_state {
  row slots;
  row offsets;
  std::map<std::pair<int, int>, json> staged = {};  ///< by rank and staging slot

  /// Reads, then writes, then moves staged experts to their slots.
  void play(json const& transfers, int round, std::string const& rule) {
    std::set<std::pair<int, int>> flows;
    for (json const& t : transfers) {
      if (t.at("round") == round) {
        expect(slots.at(index(t.at("source_slot"))) == t.at("expert"),
               "a source that holds the expert, for " + t.dump());
        flows.emplace(t.at("source_rank").get<int>(), t.at("destination_rank").get<int>());
      }
    }
    check_rule(flows, rule);
    for (json const& t : transfers) {
      if (t.at("round") == round) {
        write(t);
      }
    }
    for (auto at = staged.begin(); at != staged.end();) {
      json const& t = at->second;
      bool const ends = t.at("commit_round") == round;
      if (ends) {
        slots.at(index(t.at("destination_slot"))) = t.at("expert");
      }
      at = ends ? staged.erase(at) : std::next(at);
    }
  }

 private:
  void write(json const& t) {
    int const from = t.at("source_rank");
    int const to = t.at("destination_rank");
    expect(rank_of(offsets, t.at("source_slot")) == from &&
               rank_of(offsets, t.at("destination_slot")) == to,
           "slots of these ranks in " + t.dump());
    expect((t.at("kind") == "local_copy") == (from == to), "the kind of " + t.dump());
    if (t.at("staging_slot") < 0) {
      expect(t.at("commit_round") == t.at("round"), "a round to write in for " + t.dump());
      slots.at(index(t.at("destination_slot"))) = t.at("expert");
    } else {
      expect(staged.emplace(std::pair(to, t.at("staging_slot").get<int>()), t).second,
             "a free staging slot for " + t.dump());
    }
  }

  static void check_rule(std::set<std::pair<int, int>> const& flows, std::string const& rule) {
    std::map<int, std::set<int>> sent_to;
    std::map<int, std::set<int>> received_from;
    for (auto const& [from, to] : flows) {
      if (from != to) {
        sent_to[from].insert(to);
        received_from[to].insert(from);
      }
    }
    for (auto const& [rank, peers] : sent_to) {
      std::set<int> all = received_from[rank];
      bool const one = peers.size() == 1 && all.size() <= 1;
      all.insert(peers.begin(), peers.end());
      expect(rule == "one-peer" ? all.size() == 1 : one, "the rule of the rounds");
    }
    for (auto const& [rank, peers] : received_from) {
      expect(peers.size() <= 1, "one rank at a time that sends to a rank");
    }
  }
};

/// Returns the experts of every rank that it did not hold before.
std::int64_t moves_between(row const& before, row const& after, row const& offsets) {
  std::int64_t moves = 0;
  for (std::size_t rank = 0; rank + 1 < offsets.size(); ++rank) {
    auto const held = [&](row const& slots) {
      return std::set<int>(slots.begin() + offsets[rank], slots.begin() + offsets[rank + 1]);
    };
    std::set<int> const old = held(before);
    for (int const expert : held(after)) {
      moves += expert >= 0 && !old.contains(expert) ? 1 : 0;
    }
  }
  return moves;
}

void check(char const* const* arguments) {
  auto const read = [&](int i) { return json::parse(std::ifstream(arguments[i])); };
  json const before = read(1);
  json const after = read(2);
  json const file = read(3);
  expect(file.at("format") == "plimsoll-transfers" && file.at("version") == 1, "the format");
  expect(file.at("layers").size() == before.at("layers"), "transfers of every layer");
  expect(before.at("rank_offsets") == after.at("rank_offsets"), "ranks with the same slots");
  std::int64_t moves = 0;
  std::int64_t copies = 0;
  int rounds = 0;
  for (std::size_t i = 0; i < file.at("layers").size(); ++i) {
    json const& layer = file["layers"][i];
    expect(layer.at("layer") == before.at("layer_ids").at(i), "the model's layer id");
    auto const old = before.at("physical_to_logical").at(i).get<row>();
    auto const now = after.at("physical_to_logical").at(i).get<row>();
    layer_state state{old, before.at("rank_offsets").at(i).get<row>()};
    for (int round = 0; round < layer.at("rounds"); ++round) {
      state.play(layer.at("transfers"), round, file.at("round_rule"));
    }
    expect(state.staged.empty(), "no expert left in a staging slot");
    std::int64_t changed = 0;
    for (std::size_t slot = 0; slot < now.size(); ++slot) {
      expect(now[slot] < 0 || state.slots[slot] == now[slot],
             "the new plan in layer " + std::to_string(i) + ", slot " + std::to_string(slot));
      changed += now[slot] >= 0 && now[slot] != old[slot] ? 1 : 0;
    }
    expect(static_cast<std::int64_t>(layer.at("transfers").size()) == changed,
           "one transfer to each slot that changes");
    std::int64_t const moved = moves_between(old, now, state.offsets);
    moves += moved;
    copies += changed - moved;
    rounds += layer.at("rounds").get<int>();
  }
  expect(file.at("moves") == moves && file.at("local_copies") == copies, "the number of moves");
  expect(file.at("rounds") == rounds, "the number of rounds");
  if (!file.at("expert_bytes").is_null()) {
    expect(file.at("bytes") == moves * file.at("expert_bytes").get<std::int64_t>(), "the bytes");
  }
  std::printf("moves %lld\n", static_cast<long long>(moves));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    return 2;
  }
  try {
    check(argv);
  } catch (std::exception const& e) {
    std::fprintf(stderr, "check_transfers: expected %s\n", e.what());
    return 1;
  }
}
