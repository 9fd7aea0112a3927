// SPDX-License-Identifier: Apache-2.0
#include "token_drop.cases.hpp"

namespace plimsoll_test {

TEST_CASE("token_drop: applying can be captured in a CUDA graph and replayed") {
  using P = gpu_resource_kind;
  if (!backend_available<P>()) {
    return;
  }
  drop_case c = make_drop_case(31, 200, 16, 2, 4);
  drop_in<P> const in(c);
  plimsoll::token_drop const drop(make_policy<P>(), in.options());
  array_in<float, P> logits(std::ssize(c.logits));
  array_in<std::int32_t, P> homes(c.tokens);
  drop_outputs<P> out(c);

  long const prepared = device_memory().allocations();
  cudaGraph_t graph = nullptr;
  plimsoll::detail::check_cuda(
      cudaStreamBeginCapture(device_stream(), cudaStreamCaptureModeThreadLocal),
      "cudaStreamBeginCapture");
  drop.apply(logits.view2(c.tokens, c.experts()), {.homes = homes.view1()}, out.views());
  plimsoll::detail::check_cuda(cudaStreamEndCapture(device_stream(), &graph),
                               "cudaStreamEndCapture");
  cudaGraphExec_t replay = nullptr;
  plimsoll::detail::check_cuda(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
  CHECK(device_memory().allocations() == prepared);

  for (std::uint64_t turn = 0; turn < 3; ++turn) {
    CAPTURE(turn);
    drop_case const now = make_drop_case(32 + turn, c.tokens, c.experts(), 2, 4);
    logits.assign(now.logits);
    homes.assign(now.homes);
    plimsoll::detail::check_cuda(cudaGraphLaunch(replay, device_stream()), "cudaGraphLaunch");
    drop_result const expected = parts_of<P>(now);
    check_same(out.values(expected.routed), expected);
  }
  static_cast<void>(cudaGraphExecDestroy(replay));
  static_cast<void>(cudaGraphDestroy(graph));
}

}  // namespace plimsoll_test
