// Templates that mean harm: they end with an error, soon, in bounded memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/jinja/template.h"
#include "tests/support/status_matchers.h"

namespace tandem::tokenizer::jinja {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

std::string Repeat(absl::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) absl::StrAppend(&out, text);
  return out;
}

RenderOptions Small() {
  RenderOptions options;
  options.limits = {.max_steps = 200'000,
                    .max_work_bytes = 8 << 20,
                    .max_output_bytes = 1 << 20,
                    .max_call_depth = 50};
  return options;
}

void ExpectExhausts(const std::string& source, const std::string& message) {
  SCOPED_TRACE(source.substr(0, 200));
  ASSERT_OK_AND_ASSIGN(const Template parsed, Template::Parse(source));
  EXPECT_THAT(parsed.Render(Json::object(), Small()),
              testing::StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr(message)));
}

TEST(JinjaLimits, StopsLoopsInLoops) {
  ExpectExhausts("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
                 "");
  ExpectExhausts(
      "{% set r = range(1000) %}{% for a in r %}{% for b in r %}{% set c = b %}{% endfor %}{% "
      "endfor %}",
      "steps");
}

TEST(JinjaLimits, StopsTextThatGrows) {
  ExpectExhausts(
      "{% set ns = namespace(t='ab') %}{% for i in range(60) %}{% set ns.t = ns.t ~ ns.t %}{% "
      "endfor %}",
      "bytes of text");
  ExpectExhausts("{{ 'a' * 10000000000 }}", "bytes of text");
  ExpectExhausts("{{ ('a' * 10000) | replace('a', 'b' * 10000) }}", "bytes of text");
  ExpectExhausts("{{ [1] * 4000000000000000000 }}", "bytes of text");
  ExpectExhausts("{{ 'x'.center(99999999999) }}", "bytes of text");
  ExpectExhausts("{{ 'x' | indent(99999999999) }}", "bytes of text");
  ExpectExhausts("{% for i in range(3000) %}{{ 'abcdefgh' * 100 }}{% endfor %}",
                 "writes more than");
}

TEST(JinjaLimits, NegativeSizesGiveNoBudgetBack) {
  ExpectExhausts("{{ 'x' | indent(-1000000000000) }}{{ 'a' * 10000000 }}", "bytes of text");
  ExpectExhausts("{{ 'x'.ljust(-9223372036854775807 - 1) }}{{ 'a' * 10000000 }}", "bytes of text");
}

TEST(JinjaLimits, TakesNumbersFarOutOfRange) {
  const std::string max = "9223372036854775807", min = "(-9223372036854775807 - 1)";
  const auto render = [](const std::string& source) -> absl::StatusOr<std::string> {
    SCOPED_TRACE(source);
    ASSIGN_OR_RETURN(const Template parsed, Template::Parse(source));
    return parsed.Render(Json::object(), Small());
  };
  EXPECT_THAT(render("{{ 'abc' | truncate(" + max + ", true, '', " + max + ") }}"),
              testing::IsOkAndHolds("abc"));
  EXPECT_THAT(render("{{ 'abcdefgh' | truncate(4, true, '.', 0) }}"),
              testing::IsOkAndHolds("abc."));
  for (const std::string& leeway : {std::string("-200000000"), min}) {
    EXPECT_THAT(render("{{ 'abc' | truncate(100000000, true, '', " + leeway + ") }}"),
                testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("leeway")));
  }
  EXPECT_THAT(render("{{ 'abc' | truncate(" + min + ") }}"),
              testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("`end`")));
  for (const char* pad : {"ljust", "rjust", "center", "zfill"}) {
    EXPECT_THAT(render(absl::StrCat("{{ 'abc'.", pad, "(", min, ") }}")),
                testing::IsOkAndHolds("abc"));
  }
  EXPECT_THAT(render("{{ " + min + " % 3 }}"), testing::IsOkAndHolds("1"));
  EXPECT_THAT(render("{{ 'a\nb' | indent(" + min + ") }}"), testing::IsOkAndHolds("a\nb"));
}

TEST(JinjaLimits, StopsListsThatHoldThemselvesManyTimes) {
  const std::string grow =
      "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = [ns.l, ns.l] %}{% "
      "endfor %}";
  ExpectExhausts(grow + "{{ ns.l }}", "bytes of text");
  ExpectExhausts(grow + "{{ ns.l | tojson }}", "bytes of text");
  ExpectExhausts(grow + "{{ ns.l == ns.l[0] }}", "bytes of text");
}

TEST(JinjaLimits, StopsDeepNesting) {
  ExpectExhausts(
      "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}",
      "nest deeper");
  ExpectExhausts("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "deep");
  for (const std::string& source :
       {"{{ " + Repeat("(", 100000) + "1" + Repeat(")", 100000) + " }}",
        "{{ " + Repeat("[", 100000) + "1" + Repeat("]", 100000) + " }}",

        "{{ " + Repeat("-", 100000) + "1 }}", "{{ 1" + Repeat("+1", 100000) + " }}",
        "{{ x" + Repeat(".x", 100000) + " }}", "{{ " + Repeat("not ", 100000) + "1 }}",
        Repeat("{% if 1 %}", 100000), "{{ 1" + Repeat(" if 1 else 1", 100000) + " }}",
        "{% for " + Repeat("(", 100000) + "a" + Repeat(")", 100000) + " in b %}",
        "{{ 1" + Repeat("|abs", 100000) + " }}",
        "{{ " + Repeat("{1:", 100000) + "1" + Repeat("}", 100000) + " }}"}) {
    EXPECT_THAT(Template::Parse(source),
                testing::StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("deeper")))
        << source.substr(0, 30);
  }
}

TEST(JinjaLimits, StopsChainsOfMethodsAndLoops) {
  ExpectExhausts(
      "{% set ns = namespace(m='') %}{% for i in range(9999) %}{% set ns.m = [ns.m].index %}{% "
      "endfor %}",
      "nest deeper");
  ExpectExhausts(
      "{% set ns = namespace(l=1) %}{% for i in range(9999) %}{% for x in [ns.l] %}"
      "{% set ns.l = loop %}{% endfor %}{% endfor %}",
      "nest deeper");
  ExpectExhausts("{% for a in [[1]] recursive %}{{ loop([a]) }}{% endfor %}", "deep");
}

TEST(JinjaLimits, PaysForWorkInsideOneStep) {
  ExpectExhausts(
      "{% set r = range(99999) %}{% for i in range(99999) %}{% set s = r | sum %}{% endfor %}",
      "bytes of text");
  ExpectExhausts(
      "{% set t = 'ab' * 100000 %}{% for i in range(99999) %}{% set s = t.strip() %}{% endfor %}",
      "bytes of text");
}

TEST(JinjaLimits, SurvivesObjectsThatHoldThemselves) {
  ASSERT_OK_AND_ASSIGN(
      const Template parsed,
      Template::Parse(
          "{% set a = namespace() %}{% set a.self = a %}{% set a.list = [a] %}"
          "{% macro m() %}x{% endmacro %}{% set a.macro = m %}"
          "{% for x in [1] recursive %}{% set a.loop = loop %}{% endfor %}{% set z = a.loop %}{{ "
          "a.self.list[0].macro() }}{{ a }}"));
  EXPECT_THAT(parsed.Render(Json::object(), Small()), testing::IsOkAndHolds("x<Namespace>"));
}

TEST(JinjaLimits, SurvivesRandomTemplates) {
  const char* const parts[] = {
      "{{", "}}", "{%", "%}",     "{#",     "#}",    "-",       " if ", " for ",  " in ",
      "x",  "(",  ")",  "[",      "]",      "{",     "}",       ":",    "|",      "join",
      "'",  "\"", "\\", "endif",  "endfor", " set ", "=",       ",",    "\n",     "1",
      ".5", "*",  "**", " else ", "~",      " is ",  "defined", "raw",  "endraw", "\xC3\xA9"};
  uint64_t state = 1;
  for (int i = 0; i < 20000; ++i) {
    std::string source;
    for (int k = 0; k < 12; ++k) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      source += parts[(state >> 33) % (sizeof(parts) / sizeof(parts[0]))];
    }
    const absl::StatusOr<Template> parsed = Template::Parse(source);
    if (parsed.ok()) (void)parsed->Render({{"x", {1, "a"}}}, Small());
  }
}

}  // namespace
}  // namespace tandem::tokenizer::jinja
