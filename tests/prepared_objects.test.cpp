// SPDX-License-Identifier: Apache-2.0
// Constructors of prepared objects wait for the work that they enqueued, as documented. Host memory
// needs no waiting, so the memory of these tests counts the operations that a stream would still
// have to do.
#include <doctest/doctest.h>
#include <plimsoll/plimsoll.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

namespace {

long enqueued = 0;  // since the last wait
long waits = 0;

struct stream_executor {
  template <class F>
  void for_blocks(plimsoll::index_t n, F&& f) const {
    ++enqueued;
    f(plimsoll::index_t{0}, n);
  }
};
using stream_context = plimsoll::host_context<stream_executor>;
struct stream_policy {};

}  // namespace

template <>
struct plimsoll::policy_traits<stream_policy> {
  static stream_context resolve(stream_policy const&) { return {}; }
};

template <>
struct plimsoll::detail::memory_of<stream_context> {
  static void* allocate(stream_context const&, std::size_t bytes, std::size_t alignment) {
    ++enqueued;
    return ::operator new(bytes, std::align_val_t{alignment});
  }
  static void deallocate(stream_context const&, void* pointer, std::size_t, std::size_t alignment) {
    ++enqueued;
    ::operator delete(pointer, std::align_val_t{alignment});
  }
  static void from_host(stream_context const& where, void const* source, void* destination,
                        std::size_t bytes) {
    if (bytes > 0) {
      std::memcpy(destination, source, bytes);
    }
    synchronize(where);
  }
  static void to_host(stream_context const& where, void const* source, void* destination,
                      std::size_t bytes) {
    from_host(where, source, destination, bytes);
  }
  static void rows_to_host(stream_context const& where, void const* source, std::size_t pitch,
                           void* destination, std::size_t bytes, std::size_t rows) {
    memory_of<host_context<inline_executor>>::rows_to_host({}, source, pitch, destination, bytes,
                                                           rows);
    synchronize(where);
  }
  static void zero(stream_context const&, void* destination, std::size_t bytes) {
    ++enqueued;
    if (bytes > 0) {
      std::memset(destination, 0, bytes);
    }
  }
  static void synchronize(stream_context const&) {
    ++waits;
    enqueued = 0;
  }
};

namespace {

/// Returns the number of operations enqueued after a constructor's last wait; -1 if it never waits.
template <class Make>
long left_by(Make make) {
  enqueued = waits = 0;
  [[maybe_unused]] auto const object = make();
  return waits > 0 ? enqueued : -1;
}

/// Two ranks with experts 0 to 3; the second rank has another replica of expert 0.
struct small_layer {
  std::vector<std::int32_t> map{0, 1, -1, 2, 3, 0};
  std::vector<std::int32_t> copies{2, 1, 1, 1};
  [[nodiscard]] plimsoll::placement_ref placement() const {
    return {.physical_to_logical = {map.data(), 1, 6},
            .replica_count = {copies.data(), 1, 4},
            .ranks = 2};
  }
};

constexpr stream_policy on_stream{};

}  // namespace

TEST_CASE("prepared objects: constructors wait: load_window and load_decay") {
  CHECK(left_by([] {
          return plimsoll::load_window<std::int32_t, stream_policy>(on_stream, 1, 3, {.window = 4});
        }) == 0);
  CHECK(left_by([] { return plimsoll::load_decay(on_stream, 1, 3); }) == 0);
}

TEST_CASE("prepared objects: constructors wait: latency_table") {
  std::vector<std::int64_t> const tokens{0, 4};
  std::vector<double> const latency{1, 2};
  plimsoll::latency_curves const curves{.tokens = tokens, .latency = {latency.data(), 1, 2}};
  CHECK(left_by([&] { return plimsoll::latency_table(on_stream, curves, 1); }) == 0);
}

TEST_CASE("prepared objects: constructors wait: minmax_lp and lplb") {
  small_layer const in;
  CHECK(left_by([&] { return plimsoll::minmax_lp(on_stream, in.placement()); }) == 0);
  CHECK(left_by([&] { return plimsoll::lplb(on_stream, in.placement(), {.max_ids = 8}); }) == 0);
}

TEST_CASE("prepared objects: constructors wait: least_loaded and llep") {
  plimsoll::least_loaded_options const options{.on = {.ranks = 2}, .experts = 4, .max_ids = 8};
  CHECK(left_by([&] { return plimsoll::least_loaded(on_stream, options); }) == 0);
  CHECK(left_by([&] { return plimsoll::llep(on_stream, {.rank = 0, .assignment = options}); }) ==
        0);
}

TEST_CASE("prepared objects: constructors wait: waterline and waterfill") {
  small_layer const in;
  CHECK(left_by([] {
          return plimsoll::waterline(on_stream,
                                     {.on = {.ranks = 2}, .slots = 6, .top_k = 1, .max_tokens = 8});
        }) == 0);
  CHECK(left_by([&] {
          return plimsoll::waterfill(on_stream, in.placement(),
                                     {.line = {.top_k = 1, .max_tokens = 8}});
        }) == 0);
}

TEST_CASE("prepared objects: constructors wait: capacity_mask and token_drop") {
  CHECK(left_by([] {
          return plimsoll::capacity_mask(on_stream, {.experts = 4, .top_k = 1, .max_tokens = 8});
        }) == 0);
  CHECK(left_by([] {
          return plimsoll::token_drop(
              on_stream, {.route = {.k = 1}, .limit = {.experts = 4, .max_tokens = 8}});
        }) == 0);
}
