#include "common/io/ordered_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/io/parse_json.h"
#include "tests/support/status_matchers.h"

namespace tandem::io {
namespace {

using nlohmann::ordered_json;

TEST(OrderedJson, IsWhatTheLibraryParses) {
  std::string many = "{";
  for (int i = 0; i < 100; ++i) absl::StrAppend(&many, "\"k", i % 40, "\": [", i, "], ");
  many += "\"z\": {}}";
  for (const std::string& text : std::vector<std::string>{
           R"({"b": 1, "a": {"d": [1, -2, 3.5, 18446744073709551615], "c": null}, "b": "twice"})",
           R"([[], {}, [{"x": [{}]}], true, false, "\u00e9\n"])", "7", "\"text\"", many}) {
    ASSERT_OK_AND_ASSIGN(const ordered_json expected, ParseJson<ordered_json>(text));
    ASSERT_OK_AND_ASSIGN(const ordered_json found, ParseOrderedJson(text));
    EXPECT_EQ(found.dump(), expected.dump());
  }
}

TEST(OrderedJson, RefusesWhatTheLibraryRefuses) {
  for (const std::string& text :
       std::vector<std::string>{"", "{", "{\"a\": }", "[1, 2", "{\"a\": 1} x", "\"\xFF\"", "1e999",
                                "nul", std::string(300, '[') + std::string(300, ']')}) {
    EXPECT_EQ(ParseOrderedJson(text).status(), ParseJson<ordered_json>(text).status()) << text;
  }
}

TEST(OrderedJson, AnObjectOfManyKeysTakesLinearTime) {
  std::string text = "{";
  for (int i = 0; i < 200000; ++i) absl::StrAppend(&text, "\"key ", i, "\":", i, ",");
  text.back() = '}';
  const absl::Time start = absl::Now();

  ASSERT_OK_AND_ASSIGN(const ordered_json found, ParseOrderedJson(text));

  EXPECT_EQ(found.size(), 200000u);
  EXPECT_EQ(found.back(), 199999);
  EXPECT_LT(absl::Now() - start, absl::Seconds(30));  // the library takes minutes
}

}  // namespace
}  // namespace tandem::io
