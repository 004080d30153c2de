// IsOk(), IsOkAndHolds(m) and StatusIs(code, message matcher) for absl::Status and absl::StatusOr.
#ifndef TANDEM_TESTS_SUPPORT_STATUS_MATCHERS_H_
#define TANDEM_TESTS_SUPPORT_STATUS_MATCHERS_H_

#include <gmock/gmock.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::testing {

inline const absl::Status& GetStatus(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& GetStatus(const absl::StatusOr<T>& status_or) {
  return status_or.status();
}

MATCHER(IsOk, negation ? "is not OK" : "is OK") {
  *result_listener << GetStatus(arg).ToString();
  return GetStatus(arg).ok();
}

MATCHER_P(IsOkAndHolds, matcher, "is OK and holds a value that matches") {
  if (!arg.ok()) {
    *result_listener << arg.status().ToString();
    return false;
  }
  return ::testing::ExplainMatchResult(matcher, *arg, result_listener);
}

MATCHER_P2(StatusIs, code, message, "is a status of the code whose message matches") {
  *result_listener << GetStatus(arg).ToString();
  return GetStatus(arg).code() == code &&
         ::testing::ExplainMatchResult(message, std::string(GetStatus(arg).message()),
                                       result_listener);
}

}  // namespace tandem::testing

#define ASSERT_OK(expression) ASSERT_THAT(expression, ::tandem::testing::IsOk())
#define EXPECT_OK(expression) EXPECT_THAT(expression, ::tandem::testing::IsOk())

#define TANDEM_TEST_CONCAT_INNER_(a, b) a##b
#define TANDEM_TEST_CONCAT_(a, b) TANDEM_TEST_CONCAT_INNER_(a, b)
#define ASSERT_OK_AND_ASSIGN(declaration, expression)                                      \
  TANDEM_ASSERT_OK_AND_ASSIGN_(TANDEM_TEST_CONCAT_(tandem_holder_, __LINE__), declaration, \
                               expression)
#define TANDEM_ASSERT_OK_AND_ASSIGN_(holder, declaration, expression) \
  auto holder = (expression);                                         \
  ASSERT_TRUE(holder.ok()) << holder.status();                        \
  declaration = *std::move(holder)

#endif  // TANDEM_TESTS_SUPPORT_STATUS_MATCHERS_H_
