// Many clients of a rollout whose weights change: `tandem bench serve`, small, for what it checks
// and not for its times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nlohmann/json.hpp"
#include "tests/support/program.h"
#include "tests/support/test_data.h"

namespace tandem {
namespace {

using ::nlohmann::json;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::RunProgram;

constexpr char kStories[] = "models/tinystories-656k";

TEST(ServingLoad, NoRequestIsLostWhileWeightsAreUpdated) {
  SKIP_WITHOUT_DATA(kStories);
  const ProgramResult result = RunProgram(
      "tandem", {"bench", "serve", "--model", testing::TestData(kStories), "--clients", "100",
                 "--new-tokens", "48", "--seconds", "15", "--update-seconds", "0.5", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json line = json::parse(result.out);

  EXPECT_EQ(line["lost_requests"], 0);
  EXPECT_GE(line["requests"], 100);
  EXPECT_EQ(line["tokens"], line["requests"].get<int64_t>() * 48);
  EXPECT_GE(line["updates"], 2);
  // Versions are those that there were, and requests outlive them.
  EXPECT_GE(line["oldest_version"], 0);
  EXPECT_LE(line["newest_version"], line["updates"]);
  EXPECT_GE(line["newest_version"], 1);
  EXPECT_GT(line["requests_of_several_versions"], 0);
  EXPECT_GT(line["time_to_first_token"]["p50"], 0);
  EXPECT_GE(line["inter_token_latency"]["p99"], line["inter_token_latency"]["p50"]);
}

TEST(ServingLoad, ARequestThatIsCutShortIsLostAndSaid) {
  SKIP_WITHOUT_DATA(kStories);
  // The context leaves room for 8 of the 32 tokens that each client asks for.
  const ProgramResult result = RunProgram(
      "tandem", {"bench", "serve", "--model", testing::TestData(kStories), "--clients", "4",
                 "--seconds", "1", "--update-seconds", "0", "--set", "rollout.max_model_len=40",
                 "--set", "data.max_prompt_length=8", "--set", "rollout.max_tokens=8"});

  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_EQ(json::parse(result.out)["lost_requests"], 4);
  EXPECT_THAT(result.err, ::testing::HasSubstr("has 8 tokens; expected 32"));
}

}  // namespace
}  // namespace tandem
