#include "services/rollout/openai/json_body.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/support/status_matchers.h"

namespace tandem::rollout::openai {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

std::string Repeat(const std::string& item, int count, const std::string& before,
                   const std::string& after) {
  std::string text = before;
  for (int i = 0; i < count; ++i) absl::StrAppend(&text, i == 0 ? "" : ",", item);
  return text + after;
}

std::string Names(int count) {
  std::string text = "{";
  for (int i = 0; i < count; ++i) absl::StrAppend(&text, i == 0 ? "" : ",", "\"k", i, "\":1");
  return text + "}";
}

auto Refuses(const char* what) {
  return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
}

TEST(JsonBody, TakesNoLongerPerNameHoweverManyAnObjectHas) {
  const absl::Time start = absl::Now();
  ASSERT_OK_AND_ASSIGN(const nlohmann::ordered_json body, ParseJsonBody(Names(150000)));
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));
  EXPECT_EQ(body.size(), 150000);
  EXPECT_EQ(body.begin().key(), "k0");
  EXPECT_THAT(ParseJsonBody(Names(200001)), Refuses("more than 200000 texts"));
}

TEST(JsonBody, RefusesMoreTextsAndValuesThanMemoryShouldHold) {
  EXPECT_OK(ParseJsonBody(Repeat("\"\"", 100000, "{\"prompt\":[", "]}")));
  EXPECT_THAT(ParseJsonBody(Repeat("\"\"", 200000, "{\"prompt\":[", "]}")),
              Refuses("more than 200000 texts"));
  EXPECT_OK(ParseJsonBody(Repeat("1", 1000000, "{\"prompt\":[", "]}")));
  EXPECT_THAT(ParseJsonBody(Repeat("1", 4000002, "{\"prompt\":[", "]}")),
              Refuses("more than 4000000 values"));
}

TEST(JsonBody, AnErrorDoesNotRepeatTheBody) {
  const std::string body = absl::StrCat("{\"prompt\": \"", std::string(1000000, 'a'));
  const auto parsed = ParseJsonBody(body);
  EXPECT_THAT(parsed, Refuses("not valid JSON"));
  EXPECT_LT(parsed.status().message().size(), 1000);
}

TEST(JsonBody, CountsNothingInsideTexts) {
  EXPECT_OK(ParseJsonBody(
      absl::StrCat("{\"prompt\": \"", std::string(5000000, ','), std::string(5000, ':'), "\"}")));
}

TEST(JsonBody, TextThatEndsWhatDidNotBeginIsNotJson) {
  EXPECT_THAT(ParseJsonBody("]]]:::{"), Refuses("not valid JSON"));
  EXPECT_THAT(ParseJsonBody("{}}"), Refuses("not valid JSON"));
}

}  // namespace
}  // namespace tandem::rollout::openai
