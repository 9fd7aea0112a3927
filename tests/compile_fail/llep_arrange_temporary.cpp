// expect-error: llep::arrange: groups is an output, so it must not be a temporary
// errors: 1
#include <plimsoll/systems/llep.hpp>

#include <cstdint>
#include <vector>

void wrong(plimsoll::llep<plimsoll::seq_policy>& step) {
  std::vector<std::int32_t> arranged(2);
  step.arrange(arranged, std::vector<plimsoll::spill_segment>(2));
}
