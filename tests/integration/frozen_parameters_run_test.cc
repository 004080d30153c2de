// A whole run with a frozen embedding and frozen norms: they take less memory and travel once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/addition_data.h"
#include "tests/support/program.h"

namespace tandem {
namespace {

using ::nlohmann::json;
using ::tandem::testing::JsonLines;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TinyRun;
using ::testing::HasSubstr;

constexpr char kFrozen[] = "trainer.frozen_parameters=[model.embed_tokens.weight, '*norm.weight']";
// Of the tiny model: 15 rows of the embedding, and the norms of two blocks and of the head.
constexpr int64_t kFrozenElements = 32 * (15 + 2 * 2 + 1);

TEST(FrozenParametersRun, NeedsLessMemoryAndSendsFrozenTensorsOnce) {
  const TempFolder all_folder, frozen_folder;
  const ProgramResult all = RunProgram("tandem", TinyRun(all_folder, "train"));
  ASSERT_EQ(all.exit_code, 0) << all.err;
  std::vector<std::string> args = TinyRun(frozen_folder, "train");
  args.insert(args.end(), {"--set", kFrozen});
  const ProgramResult frozen = RunProgram("tandem", args);
  ASSERT_EQ(frozen.exit_code, 0) << frozen.err;

  const std::vector<json> before = JsonLines(ReadWhole(all_folder / "run/metrics.jsonl"));
  const std::vector<json> after = JsonLines(ReadWhole(frozen_folder / "run/metrics.jsonl"));
  ASSERT_FALSE(after.empty());
  ASSERT_EQ(before.size(), after.size());
  const auto fell = [&](const char* name) {
    return before.back().at(name).get<int64_t>() - after.back().at(name).get<int64_t>();
  };
  // Of one of two ranks, in float32: a gradient and two moments less; the values stay.
  EXPECT_EQ(fell("perf/parameter_bytes"), 0);
  EXPECT_EQ(fell("perf/gradient_bytes"), kFrozenElements / 2 * 4);
  EXPECT_EQ(fell("perf/optimizer_bytes"), kFrozenElements / 2 * 8);
  const int64_t size = after.back().at("update_weights/bytes").get<int64_t>();
  EXPECT_EQ(before.back().at("update_weights/sent_bytes").get<int64_t>(), size);
  EXPECT_EQ(after.back().at("update_weights/sent_bytes").get<int64_t>(),
            size - kFrozenElements * 4);
}

TEST(FrozenParametersRun, ByBroadcastSendsFrozenTensorsOnceToo) {
  const TempFolder folder;
  std::vector<std::string> args = TinyRun(folder, "train");
  args.insert(args.end(), {"--set", kFrozen, "--set", "trainer.weight_transport=broadcast"});
  const ProgramResult result = RunProgram("tandem", args);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<json> metrics = JsonLines(ReadWhole(folder / "run/metrics.jsonl"));
  ASSERT_FALSE(metrics.empty());
  EXPECT_EQ(metrics.back().at("update_weights/sent_bytes").get<int64_t>(),
            metrics.back().at("update_weights/bytes").get<int64_t>() - kFrozenElements * 4);
}

TEST(FrozenParametersRun, OfATensorThatTheModelLacksIsRefusedBeforeItStarts) {
  const TempFolder folder;
  std::vector<std::string> args = TinyRun(folder, "train");
  args.insert(args.end(), {"--set", "trainer.frozen_parameters=[model.embeddings.weight]"});
  const ProgramResult result = RunProgram("tandem", args);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("'model.embeddings.weight' matches no tensor"));
}

}  // namespace
}  // namespace tandem
