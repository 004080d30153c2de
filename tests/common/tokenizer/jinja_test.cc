// The cases that the golden file does not hold: messages, lines, time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/time/time.h"
#include "common/tokenizer/jinja/template.h"
#include "tests/support/status_matchers.h"

namespace tandem::tokenizer::jinja {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

absl::StatusOr<std::string> Render(const std::string& source,
                                   const Json& context = Json::object()) {
  const absl::StatusOr<Template> parsed = Template::Parse(source);
  if (!parsed.ok()) return parsed.status();
  return parsed->Render(context);
}

void ExpectFails(const std::string& source, const std::string& message) {
  EXPECT_THAT(Render(source, {{"text", "t"}, {"none", nullptr}}),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)));
}

TEST(Jinja, ErrorsNameTheLineAndTheReason) {
  ExpectFails("a\nb\n{{ x.y }}", "template line 3: 'x' is undefined");
  ExpectFails("{{ text.z.y }}", "template line 1: 'str object' has no attribute 'z'");
  ExpectFails("{{ text + 1 }}", "can only concatenate str");
  ExpectFails("{% if a %}\n{% if b %}\n{% endif %}\n", "template line 1: expected '{% elif %}'");
  ExpectFails("{{ text | nope }}", "there is no filter 'nope'");
  ExpectFails("{% unknown %}", "unknown statement 'unknown'");
  ExpectFails("\n{{ 'abc }}", "template line 2: a string is not closed");
  ExpectFails("{{ text", "a tag is not closed");
  ExpectFails("{# text", "a comment is not closed");
  ExpectFails("{{ 9223372036854775807 + 1 }}", "beyond 64 bits");
}

TEST(Jinja, NamesStatementsThatAreLeftOut) {
  EXPECT_THAT(Render("{% include 'x' %}"),
              testing::StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("include")));
  EXPECT_THAT(Render("{{ f(*x) }}"),
              testing::StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("template line 1")));
}

TEST(Jinja, FormatsTheTimeItIsGiven) {
  ASSERT_OK_AND_ASSIGN(const Template parsed, Template::Parse("{{ strftime_now('%Y %B') }}"));
  RenderOptions options;
  options.now = absl::FromCivil(absl::CivilDay(2024, 7, 15), absl::UTCTimeZone());
  EXPECT_THAT(parsed.Render(Json::object(), options), testing::IsOkAndHolds("2024 July"));
}

TEST(Jinja, KeepsTheOrderOfKeys) {
  EXPECT_THAT(Render("{{ d | tojson }}", {{"d", {{"z", 1}, {"a", "<é>"}}}}),
              testing::IsOkAndHolds(R"({"z": 1, "a": "<é>"})"));
}

TEST(Jinja, RefusesAContextThatIsNotUtf8) {
  EXPECT_THAT(Render("{{ x }}", {{"x", "\xFF"}}),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("UTF-8")));
}

}  // namespace
}  // namespace tandem::tokenizer::jinja
