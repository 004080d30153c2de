#include "common/io/json_fields.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/status_matchers.h"

namespace tandem::io {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const nlohmann::json& Object() {
  static const nlohmann::json object = nlohmann::json::parse(R"({
    "name": "llama", "layers": 4, "theta": 1e4, "tied": true, "absent": null,
    "eos": [1, 2], "mixed": [1, "2"], "huge": 18446744073709551615,
    "rope": {"factor": "8"}})");
  return object;
}

TEST(JsonFields, ReadsFieldsOfTheTypeAskedFor) {
  const JsonFields fields(Object(), "c.json");
  EXPECT_THAT(fields.String("name"), IsOkAndHolds("llama"));
  EXPECT_THAT(fields.Int("layers"), IsOkAndHolds(4));
  EXPECT_THAT(fields.Double("layers"), IsOkAndHolds(4.0));
  EXPECT_THAT(fields.Double("theta"), IsOkAndHolds(1e4));
  EXPECT_THAT(fields.Bool("tied"), IsOkAndHolds(true));
  EXPECT_THAT(fields.IntList("eos"), IsOkAndHolds(ElementsAre(1, 2)));
}

TEST(JsonFields, NamesThePlaceTheFieldAndWhatWasFound) {
  const JsonFields fields(Object(), "c.json");
  const auto bad = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(fields.Int("name"),
              StatusIs(bad, "c.json: name: expected an integer, found the string \"llama\""));
  EXPECT_THAT(fields.Int("nothing"),
              StatusIs(bad, "c.json: nothing: expected an integer, found no such field"));
  EXPECT_THAT(fields.Int("theta"), StatusIs(bad, HasSubstr("found the number 10000.0")));
  EXPECT_THAT(fields.Int("huge"), StatusIs(bad, HasSubstr("18446744073709551615")));
  EXPECT_THAT(fields.IntList("mixed"), StatusIs(bad, HasSubstr("the string \"2\" at position 1")));
  ASSERT_OK_AND_ASSIGN(const JsonFields rope, fields.Object("rope"));
  EXPECT_THAT(rope.Double("factor"), StatusIs(bad, HasSubstr("c.json: rope: factor: ")));
}

TEST(JsonFields, TakesTheOtherValueForAbsentAndNullOnly) {
  const JsonFields fields(Object(), "c.json");
  EXPECT_THAT(fields.IntOr("absent", 7), IsOkAndHolds(7));
  EXPECT_THAT(fields.StringOr("nothing", "x"), IsOkAndHolds("x"));
  EXPECT_THAT(fields.BoolOr("layers", false),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("true or false")));
}

}  // namespace
}  // namespace tandem::io
