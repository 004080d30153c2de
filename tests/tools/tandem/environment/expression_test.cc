#include "tools/tandem/environment/expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/status_matchers.h"

namespace tandem::environment {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

TEST(Expression, ComputesWhatGsm8kWrites) {
  const std::pair<const char*, const char*> cases[] = {
      {"48/2", "24"},
      {"48+24", "72"},
      {"12/60", "0.2"},
      {"0.2*50", "10"},
      {"100/2", "50"},
      {"100-50-30-15", "5"},
      {".05*20", "1"},
      {"5.*2", "10"},
      {"1,000*3", "3000"},
      {"1,234,567+1", "1234568"},
      {"20%*50", "10"},
      {"200*15%", "30"},
      {"(3+4)*2", "14"},
      {"$18*2", "36"},
      {"2/3", "0.666666666667"},
      {"0.1+0.2", "0.3"},
      {"1/8", "0.125"},
      {"7*24*60", "10080"},
  };
  for (const auto& [expression, value] : cases) {
    const absl::StatusOr<std::string> found = EvaluateExpression(expression);
    ASSERT_OK(found.status()) << expression;
    EXPECT_EQ(*found, value) << expression;
  }
}

TEST(Expression, BindsAsInArithmetic) {
  const std::pair<const char*, const char*> cases[] = {
      {"2+3*4", "14"},
      {"2*3+4", "10"},
      {"8/4/2", "1"},
      {"8-4-2", "2"},
      {"-3+5", "2"},
      {"2*-3", "-6"},
      {"-(2+3)", "-5"},
      {"--4", "4"},
      {"((((1))))", "1"},
      {"(1+2)*(3+4)", "21"},
      {"50%%", "0.005"},
      {" 1 + 2 ", "3"},
      {"6 \xC3\xB7 2", "3"},
      {"6\xC3\x97"
       "2",
       "12"},
      {"1-1", "0"},
      {"0*-1", "0"},
      {"-7/2", "-3.5"},
      {"10/4*2", "5"},
  };
  for (const auto& [expression, value] : cases) {
    const absl::StatusOr<std::string> found = EvaluateExpression(expression);
    ASSERT_OK(found.status()) << expression;
    EXPECT_EQ(*found, value) << expression;
  }
}

TEST(Expression, SaysWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "expected a number, found the end"},
      {"3+", "expected a number, found the end"},
      {"3+*2", "expected a number, found \"*2\""},
      {"(3+4", "expected \")\", found the end"},
      {"3)", "expected an operator, found \")\""},
      {"1,00", "groups of three digits after a comma"},
      {"1,0000", "groups of three digits after a comma"},
      {"12 apples", "expected an operator, found \"apples\""},
      {"x*2", "expected a number, found \"x*2\""},
      {"2**3", "expected a number, found \"*3\""},
      {"1.2.3", "expected an operator, found \".3\""},
      {".", "expected a number"},
      {"5/0", "division by zero"},
      {"5/(2-2)", "division by zero"},
      {"999999999*999999999*9", "1e15 or more"},
  };
  for (const auto& [expression, problem] : cases) {
    EXPECT_THAT(EvaluateExpression(expression).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(problem)))
        << expression;
  }
}

TEST(Expression, BoundsDepthAndLength) {
  const auto nested = [](int depth) {
    return absl::StrCat(std::string(depth, '('), "1", std::string(depth, ')'));
  };
  EXPECT_OK(EvaluateExpression(nested(100)).status());
  EXPECT_THAT(EvaluateExpression(nested(101)).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("100 open parentheses")));
  EXPECT_THAT(EvaluateExpression(absl::StrCat(std::string(101, '-'), "1")).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("100 open parentheses")));
  EXPECT_THAT(EvaluateExpression(std::string(1001, '1')).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 1000 bytes")));
}

}  // namespace
}  // namespace tandem::environment
