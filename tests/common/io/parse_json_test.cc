// Text that nlohmann-json reads and then cannot handle, and text that it throws at.
#include "common/io/parse_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "common/io/jsonl.h"
#include "common/io/read_file.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::io {
namespace {

using nlohmann::json;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr absl::StatusCode kNoJson = absl::StatusCode::kInvalidArgument;

std::string Nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') +
         std::string(static_cast<size_t>(depth), ']');
}

TEST(ParseJson, DepthIsBounded) {
  EXPECT_OK(ParseJson<json>(Nested(kMaxJsonDepth)).status());
  EXPECT_THAT(ParseJson<json>(Nested(kMaxJsonDepth + 1)),
              StatusIs(kNoJson, HasSubstr("at most 256 levels")));
  EXPECT_THAT(ParseJson<json>(std::string(1000000, '[')), StatusIs(kNoJson, HasSubstr("levels")));
  std::string objects;
  for (int i = 0; i < 300; ++i) objects += "{\"a\":";
  EXPECT_THAT(ParseJson<json>(objects), StatusIs(kNoJson, HasSubstr("levels")));
}

TEST(ParseJson, BracketsOfStringsAreNoLevels) {
  const json text = std::string(1000, '[') + "\"\\" + std::string(1000, '{');
  EXPECT_THAT(ParseJson<json>(text.dump()), ::tandem::testing::IsOkAndHolds(text));
}

TEST(ParseJson, NumbersAndBytesThatNothingHoldsAreErrors) {
  EXPECT_THAT(ParseJson<json>("1e999"), StatusIs(kNoJson, HasSubstr("number overflow")));
  EXPECT_THAT(ParseJson<json>("-1e999"), StatusIs(kNoJson, HasSubstr("number overflow")));
  EXPECT_THAT(ParseJson<json>("\"\xff\xfe\""), StatusIs(kNoJson, HasSubstr("UTF-8")));
  EXPECT_THAT(ParseJson<json>("\"\\ud800\""), StatusIs(kNoJson, HasSubstr("surrogate")));
  EXPECT_THAT(ParseJson<json>(""), StatusIs(kNoJson, HasSubstr("unexpected end")));
  EXPECT_THAT(ParseJson<nlohmann::ordered_json>("1e999"), StatusIs(kNoJson, HasSubstr("range")));
}

TEST(ParseJson, IntegersBeyond64BitsBecomeNumbers) {
  const auto value = ParseJson<json>("123456789012345678901234567890");
  ASSERT_OK(value.status());
  EXPECT_TRUE(value->is_number_float());
}

TEST(ParseJson, AProblemIsShortHoweverLongTheText) {
  const auto value = ParseJson<json>("\"" + std::string(1000000, 'a'));
  EXPECT_THAT(std::string(value.status().message()), SizeIs(::testing::Lt(400u)));
}

TEST(ParseJson, EveryFileIsReadThroughIt) {
  const TempFolder folder;
  const std::string row = "{\"a\": " + Nested(100000) + "}";
  EXPECT_THAT(ReadJsonFile(folder.Write("config.json", row)),
              StatusIs(kNoJson, AllOf(HasSubstr("config.json"), HasSubstr("levels"))));
  EXPECT_THAT(ReadJsonLines(folder.Write("rows.jsonl", "{\"a\": 1}\n" + row + "\n")),
              StatusIs(kNoJson, AllOf(HasSubstr("rows.jsonl:2"), HasSubstr("levels"))));
  EXPECT_THAT(ReadJsonLines(folder.Write("rows.jsonl", "{\"a\": 1e999}\n")),
              StatusIs(kNoJson, AllOf(HasSubstr("rows.jsonl:1"), HasSubstr("range"))));
}

}  // namespace
}  // namespace tandem::io
