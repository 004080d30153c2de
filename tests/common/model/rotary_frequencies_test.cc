// Rotary frequencies from both forms of config.json, against what transformers computes
// (tests/parity/rotary_frequencies.py), and config.json's wrong values.
#include "common/model/rotary_frequencies.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "common/model/families/rotary_config.h"
#include "nlohmann/json.hpp"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr RotaryDefaults kDefaults{
    .head_dim = 32, .max_position_embeddings = 256, .has_share = true, .has_alpha = true};

absl::StatusOr<RopeSpec> Parse(const json& config, const RotaryDefaults& defaults = kDefaults,
                               const std::string& layer_type = "") {
  return ParseRotary(ConfigReader(config, "config.json"), defaults, layer_type);
}

TEST(RotaryFrequencies, AreThoseOfTransformersInBothFormsOfConfig) {
  const char* const source = std::getenv("TANDEM_SOURCE");
  std::ifstream file(std::string(source == nullptr ? "." : source) +
                     "/tests/common/model/golden/rotary_frequencies.json");
  const json cases = json::parse(file);
  ASSERT_GT(cases.size(), 10u);
  for (const json& of : cases) {
    const std::string layer_type = of["layer_type"];
    const RotaryDefaults defaults{.head_dim = of["head_dim"],
                                  .max_position_embeddings = of["older"]["max_position_embeddings"],
                                  .has_share = true,
                                  .has_alpha = true};
    for (const char* const form : {"older", "newer"}) {
      SCOPED_TRACE(of["name"].get<std::string>() + ", " + form);
      ASSERT_OK_AND_ASSIGN(const RopeSpec rope, Parse(of[form], defaults, layer_type));
      for (const json& expected : of["values"]) {
        const RotaryFrequencies found = FrequenciesOf(rope, defaults.head_dim, expected["length"]);
        ASSERT_EQ(found.inverse.size(), expected["inverse"].size());
        EXPECT_FLOAT_EQ(static_cast<float>(found.attention_factor),
                        expected["attention_factor"].get<float>());
        for (size_t i = 0; i < found.inverse.size(); ++i) {
          const float value = expected["inverse"][i];
          // The last bits differ with the library's pow().
          EXPECT_NEAR(found.inverse[i], value, 1e-6 * value) << "pair " << i;
        }
      }
    }
  }
}

TEST(RotaryFrequencies, ALongSequenceCannotBeGeneratedWhereItsLengthCounts) {
  ModelSpec spec;
  spec.max_position_embeddings = 4096;
  EXPECT_EQ(LongestGeneration(spec), 4096);
  spec.ropes.emplace_back().dynamic = {.factor = 2.0, .original_max_position_embeddings = 1024};
  EXPECT_TRUE(DependsOnLength(spec.ropes[1]));
  EXPECT_EQ(LongestGeneration(spec), 1024);
}

TEST(RotaryConfig, OlderNamesOfKeysAreRead) {
  ASSERT_OK_AND_ASSIGN(const RopeSpec neox,
                       Parse({{"rotary_pct", 0.25}, {"rotary_emb_base", 5000}}));
  EXPECT_EQ(neox.rotary_dim, 8);
  EXPECT_EQ(neox.theta, 5000.0);
  ASSERT_OK_AND_ASSIGN(
      const RopeSpec gptj,
      Parse(json::object(), {.head_dim = 32, .rotary_dim = 12, .interleaved = true}));
  EXPECT_EQ(gptj.rotary_dim, 12);
  EXPECT_TRUE(gptj.interleaved);
  const json hunyuan = {
      {"rope_theta", 10000.0},
      {"rope_scaling", {{"type", "dynamic"}, {"alpha", 1000.0}, {"factor", 1.0}}}};
  ASSERT_OK_AND_ASSIGN(const RopeSpec alpha, Parse(hunyuan));
  EXPECT_FALSE(alpha.dynamic.has_value());
  EXPECT_NEAR(alpha.theta, 10000.0 * std::pow(1000.0, 32.0 / 30.0), 1e-3);
}

TEST(RotaryConfig, DefaultsStandForMissingKeys) {
  const RotaryDefaults defaults{.head_dim = 32,
                                .theta = 1e6,
                                .sliding_theta = 1e4,
                                .has_share = true,
                                .partial_rotary_factor = 0.5};
  ASSERT_OK_AND_ASSIGN(const RopeSpec full, Parse(json::object(), defaults, "full_attention"));
  EXPECT_EQ(full.theta, 1e6);
  EXPECT_EQ(full.rotary_dim, 16);
  ASSERT_OK_AND_ASSIGN(const RopeSpec sliding,
                       Parse(json::object(), defaults, "sliding_attention"));
  EXPECT_EQ(sliding.theta, 1e4);
}

TEST(RotaryConfig, WrongValuesAreNamed) {
  const auto expect = [](const json& config, absl::StatusCode code, const std::string& text,
                         const RotaryDefaults& defaults = kDefaults) {
    EXPECT_THAT(Parse(config, defaults).status(), testing::StatusIs(code, HasSubstr(text)))
        << config;
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  const auto scaled = [](json scaling) { return json{{"rope_scaling", std::move(scaling)}}; };
  expect({{"rope_theta", -1}}, kInvalid, "\"rope_theta\" must be a positive number; found -1");
  expect({{"rope_scaling", 3}}, kInvalid, "\"rope_scaling\" must be an object");
  expect({{"partial_rotary_factor", 0.1}}, kInvalid, "\"partial_rotary_factor\"");
  expect({{"rotary_dim", 40}}, kInvalid, "\"rotary_dim\"", {.head_dim = 32, .rotary_dim = 40});
  expect(scaled({{"type", "linear"}}), kInvalid, "\"factor\" must be a positive number");
  expect(scaled({{"rope_type", "llama3"}, {"high_freq_factor", 1.0}, {"low_freq_factor", 2.0}}),
         kInvalid, "\"high_freq_factor\"");
  expect(scaled({{"rope_type", "yarn"}, {"factor", 0}}), kInvalid, "\"factor\"");
  expect(scaled({{"rope_type", "longrope"}, {"short_factor", {1.0, 2.0}}}), kInvalid,
         "\"short_factor\" must be a list of 16");
  expect(scaled({{"rope_type", "spiral"}}), absl::StatusCode::kUnimplemented, "spiral");
}

}  // namespace
}  // namespace tandem::model
