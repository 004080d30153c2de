#include "common/telemetry/uncaught_exceptions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/support/sanitizer.h"

namespace tandem::telemetry {
namespace {

TEST(UncaughtExceptionsDeathTest, AnExceptionOfAnyThreadEndsTheProcessWithItsCause) {
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        NameUncaughtExceptions("tandem-test");
        std::thread([] { throw std::runtime_error("a peer said so"); }).join();
      },
      ::testing::ExitedWithCode(1), "tandem-test ends.*a peer said so");
}

void RunOutOfAddressSpace() {
  NameUncaughtExceptions("tandem-test");
  const rlimit space{rlim_t{8} << 30, rlim_t{8} << 30};
  setrlimit(RLIMIT_AS, &space);
  std::thread([] { std::vector<char> much(size_t{1} << 40); }).join();
}

TEST(UncaughtExceptionsDeathTest, WantOfAddressSpaceNamesItsLimit) {
  if (testing::kSanitizerKeepsMemory) GTEST_SKIP() << "a sanitizer maps more than the limit";
  ::testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(RunOutOfAddressSpace(), ::testing::ExitedWithCode(1),
              "out of memory.*RLIMIT_AS. allows 8.0 GiB");
}

}  // namespace
}  // namespace tandem::telemetry
