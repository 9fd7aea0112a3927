// SPDX-License-Identifier: Apache-2.0
// The doctest main of every test program.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

namespace {

// A filter that matches nothing must not pass: ctest selects suites by name.
unsigned selected = 0;

struct selection : doctest::IReporter {
  explicit selection(doctest::ContextOptions const&) {}
  void report_query(doctest::QueryData const&) override {}
  void test_run_start() override {}
  void test_run_end(doctest::TestRunStats const& stats) override {
    selected = stats.numTestCasesPassingFilters;
  }
  void test_case_start(doctest::TestCaseData const&) override {}
  void test_case_reenter(doctest::TestCaseData const&) override {}
  void test_case_end(doctest::CurrentTestCaseStats const&) override {}
  void test_case_exception(doctest::TestCaseException const&) override {}
  void subcase_start(doctest::SubcaseSignature const&) override {}
  void subcase_end() override {}
  void log_assert(doctest::AssertData const&) override {}
  void log_message(doctest::MessageData const&) override {}
  void test_case_skipped(doctest::TestCaseData const&) override {}
};
REGISTER_LISTENER("selection", 1, selection);

}  // namespace

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  int const failures = context.run();
  if (context.shouldExit()) {
    return failures;
  }
  if (selected == 0) {
    std::puts("no test case matches the filter");
    return 1;
  }
  return failures;
}
