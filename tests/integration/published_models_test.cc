// Generation and scoring of published models, through the services, against what transformers
// computed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/addition_data.h"
#include "tests/support/program.h"
#include "tests/support/test_data.h"

namespace tandem {
namespace {

using ::nlohmann::json;
using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TestData;

TEST(PublishedModels, TinyStoriesContinuesItsPromptsAsTransformersDoes) {
  SKIP_WITHOUT_DATA("models/tinystories-656k/greedy_3.jsonl");
  const TempFolder folder;
  const std::string model = TestData("models/tinystories-656k");
  const auto golden = JsonLines(ReadWhole(model + "/greedy_3.jsonl"));
  std::string input;
  size_t longest = 0;
  for (const json& row : golden) {
    input += json{{"prompt", row["prompt"]}}.dump() + "\n";
    longest = std::max(longest, row["greedy_ids"].size());
  }

  const ProgramResult result = RunProgram(
      "tandem", {"generate", "--model", model, "--input", folder.Write("in.jsonl", input),
                 "--temperature", "0", "--max-tokens", std::to_string(longest)});

  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto lines = JsonLines(result.out);
  ASSERT_EQ(lines.size(), golden.size());
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i]["ids"], golden[i]["greedy_ids"]);
}

TEST(PublishedModels, BothSidesScoreAlike) {
  SKIP_WITHOUT_DATA("models/tinystories-656k/greedy_3.jsonl");
  const TempFolder folder;
  const std::string model = TestData("models/tinystories-656k");
  std::string input;
  for (const json& row : JsonLines(ReadWhole(model + "/greedy_3.jsonl"))) {
    json ids = row["prompt_ids"];
    for (const json& id : row["greedy_ids"]) ids.push_back(id);
    input += json{{"ids", ids}}.dump() + "\n";
  }
  const std::string path = folder.Write("in.jsonl", input);

  const ProgramResult trainer =
      RunProgram("tandem", {"score", "--model", model, "--side", "trainer", "--input", path});
  const ProgramResult rollout =
      RunProgram("tandem", {"score", "--model", model, "--side", "rollout", "--input", path});

  ASSERT_EQ(trainer.exit_code, 0) << trainer.err;
  ASSERT_EQ(rollout.exit_code, 0) << rollout.err;
  const auto a = JsonLines(trainer.out), b = JsonLines(rollout.out);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i]["logprobs"].size(), b[i]["logprobs"].size());
    for (size_t t = 0; t < a[i]["logprobs"].size(); ++t) {
      EXPECT_NEAR(a[i]["logprobs"][t].get<double>(), b[i]["logprobs"][t].get<double>(), 1e-4);
    }
  }
}

}  // namespace
}  // namespace tandem
