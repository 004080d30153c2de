#include "common/tool_calls/argument_value.h"

#include <gtest/gtest.h>

#include "tests/common/tool_calls/answers.h"

namespace tandem::tool_calls {
namespace {

std::string Value(const char* text, const char* parameter, const char* function = "get_weather") {
  return ArgumentValue(text, TestSchemas(), function, parameter).dump();
}

TEST(ArgumentValue, IsTextWhereTheSchemaSaysSo) {
  EXPECT_EQ(Value("12", "city"), R"("12")");
  EXPECT_EQ(Value(" {} ", "city"), R"(" {} ")");
  EXPECT_EQ(Value("null", "city"), R"("null")");
  EXPECT_EQ(Value("null", "zip"), "null");
  EXPECT_EQ(Value("8001", "zip"), R"("8001")");
}

TEST(ArgumentValue, IsJsonElsewhereAndTextIfItIsNone) {
  EXPECT_EQ(Value("12", "days"), "12");
  EXPECT_EQ(Value("a few", "days"), R"("a few")");
  EXPECT_EQ(Value("[1, \"a\"]", "tags"), R"([1,"a"])");
  EXPECT_EQ(Value("True", "exact"), "true");
  EXPECT_EQ(Value("None", "tags"), "null");
  EXPECT_EQ(Value("1.5", "unknown"), "1.5");
  EXPECT_EQ(Value("x", "unknown", "other"), R"("x")");
}

}  // namespace
}  // namespace tandem::tool_calls
