// SPDX-License-Identifier: Apache-2.0
// State passes between a .cpp and a .cu file in every direction.
#include "state.hpp"

#include <cstdio>
#include <utility>

int main() {
  state by_host = of_host::make();
  state by_cuda = of_cuda::make();
  bool const good = of_cuda::as_expected(by_host) && of_host::as_expected(by_cuda) &&
                    of_host::as_expected(of_cuda::take(std::move(by_host))) &&
                    of_cuda::as_expected(of_host::take(std::move(by_cuda)));
  std::puts(good ? "both files read and move each other's state" : "state changed on its way");
  return good ? 0 : 1;
}
