// Where tests find the published models, tokenizers and data sets that are not part of the project:
// the folder TANDEM_DATA, by default ../shared/data beside the checkout.
#ifndef TANDEM_TESTS_SUPPORT_TEST_DATA_H_
#define TANDEM_TESTS_SUPPORT_TEST_DATA_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace tandem::testing {

inline std::string TestDataRoot() {
  if (const char* data = std::getenv("TANDEM_DATA"); data != nullptr && *data != '\0') return data;
  const char* source = std::getenv("TANDEM_SOURCE");
  return std::string(source != nullptr ? source : ".") + "/../shared/data";
}

inline std::string TestData(const std::string& relative) { return TestDataRoot() + "/" + relative; }

}  // namespace tandem::testing

// Skips the test, with the reason, where the file or folder of the data is absent.
#define SKIP_WITHOUT_DATA(relative)                                    \
  if (!std::filesystem::exists(::tandem::testing::TestData(relative))) \
  GTEST_SKIP() << "no " << ::tandem::testing::TestData(relative) << "; set TANDEM_DATA"

#endif  // TANDEM_TESTS_SUPPORT_TEST_DATA_H_
