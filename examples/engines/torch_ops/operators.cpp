// SPDX-License-Identifier: Apache-2.0
// The operators torch.ops.plimsoll.*, for tensors on the CPU and for meta tensors.
#include "operators.hpp"
#include "../common/threads.hpp"

namespace torch_ops_example {
namespace {

struct host {
  using policy_type = plimsoll_engines::host_policy;
  static policy_type policy_on(at::Device) { return {plimsoll_engines::threads_of_calls}; }
  static void* stream_of(at::Device) { return nullptr; }

  struct device_guard {
    explicit device_guard(at::Device) {}
  };
};

}  // namespace

TORCH_LIBRARY(plimsoll, library) {
  library.class_<lplb_object>("Lplb")
      .def("update", &lplb_object::update)
      .def("check", &check<lplb_object>, "", {torch::arg("allow_lost") = false})
      .def("counters", &counters<lplb_object>)
      .def("quotas", &array<&lplb_object::quotas>::of);
  library.class_<waterfill_object>("Waterfill")
      .def("update", &waterfill_object::update, "",
           {torch::arg("rank_offsets"), torch::arg("active") = torch::arg::none()})
      .def("check", &check<waterfill_object>, "", {torch::arg("allow_lost") = false})
      .def("counters", &counters<waterfill_object>);
  library.class_<capacity_mask_object>("CapacityMask")
      .def("check", &check<capacity_mask_object>, "", {torch::arg("allow_lost") = false})
      .def("counters", &counters<capacity_mask_object>);
  library.class_<least_loaded_object>("LeastLoaded")
      .def("update", &least_loaded_object::update, "",
           {torch::arg("physical_to_logical"), torch::arg("rank_offsets"),
            torch::arg("active") = torch::arg::none()})
      .def("check", &check<least_loaded_object>, "", {torch::arg("allow_lost") = false})
      .def("counters", &counters<least_loaded_object>)
      .def("send_counts", &array<&least_loaded_object::send_counts>::of)
      .def("receive_counts", &array<&least_loaded_object::receive_counts>::of)
      .def("transfers", &array<&least_loaded_object::transfers>::of)
      .def("transfer_offsets", &array<&least_loaded_object::transfer_offsets>::of);

  library.def("set_threads(int threads) -> ()", &plimsoll_engines::set_threads);
  library.def(
      "rebalance_experts(Tensor weight, int num_replicas, int num_groups, int num_nodes, "
      "int num_gpus) -> (Tensor, Tensor, Tensor)");
  library.def(
      "place_by_flow(Tensor loads, int slots, int ranks, int nodes=1, Tensor? active=None, "
      "bool split_evenly=False) -> (Tensor, Tensor)");
  library.def(
      "select_planner(Tensor loads, int slots, int ranks, int nodes=1, Tensor? active=None, "
      "bool split_evenly=False) -> (Tensor, Tensor, Tensor)");
  library.def(
      "craft(Tensor loads, int ranks, int budget=-1, int nodes=1, Tensor? active=None, "
      "bool split_evenly=True) -> (Tensor, Tensor, Tensor)");
  library.def(
      "gem(Tensor loads, Tensor tokens, Tensor latency, int slots, int ranks, int dense_until=0, "
      "int restarts=30, int seed=0) -> (Tensor, Tensor)");

  library.def("align(Tensor in_use, Tensor next, int experts, int ranks, int nodes=1) -> Tensor");
  library.def(
      "plan_within(Tensor loads, Tensor in_use, Tensor next, int ranks, int nodes=1, "
      "int max_moves=9223372036854775807, bool split_evenly=False, bool validate=True) "
      "-> (Tensor, Tensor)");
  library.def(
      "plan_transfers(Tensor in_use, Tensor next, int experts, int ranks, int nodes=1, "
      "bool one_peer=True) -> Tensor");

  library.def(
      "decide_replan(Tensor loads, Tensor in_use, Tensor next, int ranks, *, int horizon, "
      "int expert_bytes, float per_token, float launch=0.0, float per_expert=0.0, "
      "float flat_below=0.0, Tensor? of_first_half=None, Tensor? of_second_half=None, int nodes=1, "
      "Tensor? active=None, bool split_evenly=False, bool one_peer=True, "
      "float local_copy_bandwidth=1.5e12, float same_node_bandwidth=450e9, "
      "float across_nodes_bandwidth=50e9, float transfer_share=1.0, float layer_stall=0.0, "
      "int least_steps=4, float standard_errors=1.0, float enough_balancedness=1.0) -> Dict(str, "
      "Tensor)");

  // Objects: each is made on the device of the first tensor.
#define TORCH_OPS_EXAMPLE_CLASS "__torch__.torch.classes.plimsoll."
  library.def(
      "lplb(Tensor physical_to_logical, Tensor replica_count, int ranks, Tensor? rank_offsets, "
      "int max_token_copies) -> " TORCH_OPS_EXAMPLE_CLASS "Lplb");
  library.def(
      "waterfill(Tensor like, int rank, int ranks, int nodes, int slots, int top_k, "
      "int max_tokens, float weight=1.0, bool to_all_ranks=False) "
      "-> " TORCH_OPS_EXAMPLE_CLASS "Waterfill");
  library.def(
      "capacity_mask(Tensor like, int experts, int top_k, int max_tokens, float factor=1.0) "
      "-> " TORCH_OPS_EXAMPLE_CLASS "CapacityMask");
  library.def(
      "least_loaded(Tensor like, int rank, int ranks, int nodes, int experts, int "
      "max_token_copies, "
      "float alpha=1.0, int min_chunk=1024, float threshold=1.3, int max_slots=0) "
      "-> " TORCH_OPS_EXAMPLE_CLASS "LeastLoaded");

  // Steps of objects, which write to the caller's tensors.
  library.def("lplb_count(" TORCH_OPS_EXAMPLE_CLASS
              "Lplb self, Tensor topk_ids, Tensor(a!) counts) -> ()");
  library.def("lplb_plan(" TORCH_OPS_EXAMPLE_CLASS "Lplb self, Tensor counts) -> ()");
  library.def("lplb_dispatch(" TORCH_OPS_EXAMPLE_CLASS
              "Lplb self, int layer, Tensor topk_ids, Tensor(a!) slots) -> ()");
  library.def("waterfill_count(" TORCH_OPS_EXAMPLE_CLASS
              "Waterfill self, Tensor topk_ids, Tensor(a!) loads) -> ()");
  library.def("waterfill_fill(" TORCH_OPS_EXAMPLE_CLASS
              "Waterfill self, Tensor topk_ids, Tensor loads, Tensor(a!) ids, "
              "Tensor? weights=None, Tensor(b!)? filled_weights=None) -> ()");
  library.def("capacity_mask_apply(" TORCH_OPS_EXAMPLE_CLASS
              "CapacityMask self, Tensor topk_ids, Tensor scores, Tensor(a!) kept_ids, "
              "Tensor(b!) kept_scores, Tensor(c!) counts) -> ()");
  library.def("least_loaded_count(" TORCH_OPS_EXAMPLE_CLASS
              "LeastLoaded self, Tensor topk_ids, Tensor(a!) counts) -> ()");
  library.def("least_loaded_plan(" TORCH_OPS_EXAMPLE_CLASS
              "LeastLoaded self, Tensor counts) -> ()");
  library.def("least_loaded_route(" TORCH_OPS_EXAMPLE_CLASS
              "LeastLoaded self, Tensor topk_ids, Tensor(a!) destinations, Tensor(b!) rows) -> ()");
#undef TORCH_OPS_EXAMPLE_CLASS
}

TORCH_LIBRARY_IMPL(plimsoll, CPU, library) { implement<host>(library); }

TORCH_LIBRARY_IMPL(plimsoll, Meta, library) {
  implement_planners<shapes>(library);
  implement_migrations<migration_shapes>(library);
  implement_gate<gate_shapes>(library);
  for_steps([&](char const* name, auto, auto skip) { library.impl(name, skip); });
}

// Nothing here has a gradient. PyTorch before 2.0 must be told so for meta tensors.
TORCH_LIBRARY_IMPL(plimsoll, Autograd, library) {
  auto const pass = [&](char const* name) {
    library.impl(name, torch::CppFunction::makeFallthrough());
  };
  for (char const* name : {"rebalance_experts", "place_by_flow", "select_planner", "craft", "gem",
                           "align", "plan_within", "plan_transfers", "decide_replan", "lplb",
                           "waterfill", "capacity_mask", "least_loaded"}) {
    pass(name);
  }
  for_steps([&](char const* name, auto, auto) { pass(name); });
}

}  // namespace torch_ops_example
