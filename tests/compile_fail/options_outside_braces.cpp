// expect-error: replicate: members of placement_options must be written as ..where = ..on =
// errors: 4
// without: candidate|no matching|deduction
// Options that hold the options of another primitive.
#include <plimsoll/plimsoll.hpp>

#include <vector>

namespace p = plimsoll;

int main() {
  p::array const loads(p::seq, std::vector{3, 1}, 1, 2);
  p::array copies(p::seq, std::vector{1, 1}, 1, 2);
  auto const plan = p::eplb(p::seq, loads, 2, {.on = {.ranks = 2}});
  p::replicate(p::seq, loads, 2, {.ranks = 2});
  p::replicate(p::seq, loads, 2, {.on = {.ranks = 2}}, copies);
  p::lplb(p::seq, plan, {.ranks = 2});
  p::llep(p::seq, {.ranks = 2});
}
