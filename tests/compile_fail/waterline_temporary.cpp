// expect-error: waterline::count: loads is an output, so it must not be a temporary
// errors: 1
// The counts would be lost with the temporary.
#include <plimsoll/waterline.hpp>

#include <cstdint>
#include <vector>

/// An owning matrix, as in a user's code.
struct counts {
  std::vector<std::int64_t> all = std::vector<std::int64_t>(4);
  std::int64_t* data_handle() { return all.data(); }
  std::int64_t const* data_handle() const { return all.data(); }
  static constexpr int rank() { return 2; }
  static plimsoll::index_t extent(int) { return 2; }
  static plimsoll::index_t stride(int d) { return d == 0 ? 2 : 1; }
};

int main() {
  std::vector<std::int32_t> const ids(8);
  plimsoll::waterline line(plimsoll::seq,
                           {.on = {.ranks = 2}, .slots = 6, .top_k = 1, .max_tokens = 8});
  line.count(plimsoll::matrix_ref<std::int32_t const>(ids.data(), 8, 1), 0, counts());
}
