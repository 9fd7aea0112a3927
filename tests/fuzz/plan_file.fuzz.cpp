// SPDX-License-Identifier: Apache-2.0
// Whatever the bytes, reading them as a plan gives one that is valid, is what was asked for and
// comes back from every format that can express it; or file_error or plan_error.
// Inputs: n for .npy, y for .yaml, anything else for .json; the number of experts, 0 for that of
// the file; the number of ranks, 0 for unknown, and with bit 6 the slots of each instead; a letter
// whose bits are the layers, J for 1 and 3, none for all; then the file.
#include <plimsoll/execution.hpp>
#include <plimsoll/placement_maps.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>

#include "../../examples/apps/plan_experts/file_tree.cpp"
#include "../../examples/apps/plan_experts/plan_file.cpp"
#include "../../examples/apps/plan_experts/plan_reader.cpp"

namespace {

using namespace examples;

void require(bool condition) {
  if (!condition) {
    std::abort();
  }
}

void require_return(plan const& p, plan_format format) {
  std::ostringstream out;
  index_t const model_layers = p.layer_ids.back() + 1;
  try {
    write_plan(out, p, format, model_layers);
  } catch (plan_error const&) {
    require(format != plan_format::plimsoll && out.str().empty());
    return;
  }
  std::string const extension = extension_of(format);
  std::string const file = "plan" + extension.substr(0, extension.find(' '));
  require(parse_plan(out.str(), file, {p.experts, p.layer_ids, p.ranks}) == p);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  constexpr std::size_t head = 4;
  if (size < head) {
    return 0;
  }
  plan_request request;
  request.experts = data[1] & 15;
  if ((data[2] & 15) != 0) {
    ((data[2] & 64) != 0 ? request.slots_of_rank : request.ranks) = data[2] & 15;
  }
  for (int layer = 0; layer < 6; ++layer) {
    if ((data[3] >> layer & 1) != 0) {
      request.layer_ids.push_back(layer);
    }
  }
  char const* const file = data[0] == 'n' ? "a.npy" : data[0] == 'y' ? "a.yaml" : "a.json";
  std::string_view const bytes(reinterpret_cast<char const*>(data) + head, size - head);
  try {
    plan const p = parse_plan(bytes, file, request);
    plimsoll::validate(plimsoll::seq, p.placement());
    require(request.experts == 0 || p.experts == request.experts);
    require(request.layer_ids.empty() || p.layer_ids == request.layer_ids);
    require(!request.ranks || p.ranks == *request.ranks);
    for (plan_format const format :
         {plan_format::plimsoll, plan_format::sglang, plan_format::trtllm, plan_format::vllm,
          plan_format::vllm_ascend, plan_format::npy}) {
      require_return(p, format);
    }
  } catch (file_error const&) {
  } catch (plan_error const&) {
  }
  return 0;
}
