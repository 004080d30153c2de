// Whole runs of sft and dpo on rows of messages, with a loss on held-out rows, no rollouts, and the
// best model kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

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
using ::tandem::testing::WriteTinyModel;

json Turn(const char* role, const std::string& content) {
  return {{"role", role}, {"content", content}};
}

// A sum as a conversation, or as a pair of the right answer and another.
std::string Rows(bool as_pairs, int first, int count) {
  std::string rows;
  for (int i = first; i < first + count; ++i) {
    const std::string sum = std::to_string(i % 5) + "+" + std::to_string(i % 4);
    const json right = Turn("assistant", std::to_string(i % 5 + i % 4));
    json row;
    if (as_pairs) {
      row = {{"prompt", json::array({Turn("user", sum)})},
             {"chosen", json::array({right})},
             {"rejected", json::array({Turn("assistant", "9")})}};
    } else {
      row = {{"messages", json::array({Turn("user", sum), right})}};
    }
    rows += row.dump() + "\n";
  }
  return rows;
}

std::vector<json> RunCommand(const TempFolder& folder, const std::string& command) {
  const bool as_pairs = command == "dpo";
  const std::string model = WriteTinyModel(folder);
  folder.Write("model/chat_template.jinja",
               "{% for m in messages %}{{ m.content }}"
               "{% if m.role == 'assistant' %}<eos>{% else %}={% endif %}{% endfor %}");
  const std::string config = folder.Write("run.yaml", R"(
model: {path: )" + model + R"(, dtype: float32, random_init: true}
data:
  train_files: [)" + folder.Write("train.jsonl", Rows(as_pairs, 0, 16)) +
                                                          R"(]
  test_files: [)" + folder.Write("test.jsonl", Rows(as_pairs, 16, 6)) +
                                                          R"(]
  train_batch_size: 8
trainer: {ranks: 2, total_epochs: 3, test_freq: 3, save_best: val/loss, collective_timeout_s: 30}
actor: {optim: {lr: 1e-2}}
reward: {name: none}
run_dir: )" + (folder / "run") + "\n");
  const ProgramResult result = RunProgram("tandem", {command, "--local", "--config", config});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return JsonLines(ReadWhole(folder / "run/metrics.jsonl"));
}

void ExpectBestModel(const TempFolder& folder, const std::vector<json>& metrics) {
  EXPECT_TRUE(std::filesystem::exists(folder / "run/best/config.json"));
  const json best = json::parse(ReadWhole(folder / "run/best.json"));
  EXPECT_EQ(best["metric"], "val/loss");
  for (size_t step = 1; step < metrics.size(); ++step) {
    if (metrics[step].contains("val/loss")) {
      EXPECT_LE(best["value"].get<double>(), metrics[step]["val/loss"].get<double>());
    }
  }
}

TEST(HeldOutRun, SupervisedTrainingLowersTheLossOfHeldOutConversations) {
  const TempFolder folder;
  const std::vector<json> metrics = RunCommand(folder, "sft");

  ASSERT_EQ(metrics.size(), 7u);  // step 0, and three epochs of two steps
  EXPECT_LT(metrics[6].at("val/loss").get<double>(), metrics[0].at("val/loss").get<double>());
  EXPECT_TRUE(metrics[3].contains("val/loss"));
  EXPECT_FALSE(metrics[1].contains("val/loss"));
  ExpectBestModel(folder, metrics);
}

TEST(HeldOutRun, PreferencesBeginAtTheReference) {
  const TempFolder folder;
  const std::vector<json> metrics = RunCommand(folder, "dpo");

  ASSERT_EQ(metrics.size(), 7u);
  EXPECT_NEAR(metrics[0].at("val/loss").get<double>(), std::log(2.0), 1e-6);
  EXPECT_LT(metrics[6].at("val/loss").get<double>(), std::log(2.0));
  EXPECT_GT(metrics[6].at("val/accuracy").get<double>(), 0.5);
  ExpectBestModel(folder, metrics);
}

}  // namespace
}  // namespace tandem
