// Whole runs with episodes of several turns: an EnvironmentService that is slow, fails and dies, and
// the calculator. Every sampled token is trained on once or accounted for, and with exact numerics the
// trainer agrees with the rollout over all turns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "tests/fakes/fake_environment.h"
#include "tests/support/addition_data.h"
#include "tests/support/chat_templates.h"
#include "tests/support/program.h"
#include "tests/support/tool_call_tokens.h"

namespace tandem {
namespace {

using environment::v1::Observation;
using environment::v1::Reset;
using environment::v1::Step;
using ::nlohmann::json;
using ::tandem::testing::FakeEnvironment;
using ::tandem::testing::JsonLines;
using ::tandem::testing::kForgetfulTemplate;
using ::tandem::testing::kPlainTemplate;
using ::tandem::testing::ProgramResult;
using ::tandem::testing::ReadWhole;
using ::tandem::testing::RunProgram;
using ::tandem::testing::TempFolder;
using ::tandem::testing::TinyRun;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using Turns = std::vector<std::vector<uint32_t>>;  // token ids

constexpr size_t kBlockSize = 16;

class EpisodesRun : public ::testing::Test {
 protected:
  // Arguments of a run with exact numerics into `folder`/run.
  std::vector<std::string> Args(const std::vector<std::string>& sets,
                                const std::string& chat_template = kPlainTemplate) {
    std::vector<std::string> args = TinyRun(folder_, "train");
    folder_.Write("model/chat_template.jinja", chat_template);
    std::vector<std::string> all = {"numerics=exact",
                                    "data.chat_template=true",
                                    "trainer.test_freq=0",
                                    "actor.entropy_coeff=0.05",  // a gradient in every step
                                    "rollout.max_tokens=12",
                                    absl::StrCat("rollout.block_size=", kBlockSize),
                                    "environment.max_tokens=44",
                                    "environment.max_turns=4",
                                    "seed=3"};
    all.insert(all.end(), sets.begin(), sets.end());
    for (const std::string& set : all) args.insert(args.end(), {"--set", set});
    return args;
  }

  // The rows of all steps.
  std::vector<json> Rows(const std::string& kind = "rollouts") const {
    std::vector<json> rows;
    for (int step = 0; step <= 3; ++step) {
      for (json& row :
           JsonLines(ReadWhole(folder_ / absl::StrCat("run/", kind, "/", step, ".jsonl")))) {
        rows.push_back(std::move(row));
      }
    }
    return rows;
  }
  std::vector<json> Metrics(const std::string& run = "run") const {
    std::vector<json> steps = JsonLines(ReadWhole(folder_ / run + "/metrics.jsonl"));
    std::erase_if(steps, [](const json& line) { return line["training/global_step"] == 0; });
    return steps;
  }
  double Sum(const std::string& metric) const {
    double sum = 0;
    for (const json& step : Metrics()) sum += step.value(metric, 0.0);
    return sum;
  }

  const TempFolder folder_;
};

// The sampled segments of a row.
Turns TurnsOf(const json& row) {
  Turns out;
  for (const json& segment : row["segments"]) {
    if (segment["kind"] == "sampled") out.push_back(segment["ids"].get<std::vector<uint32_t>>());
  }
  return out;
}

// Three turns with a reward each, or fewer: a turn with a 7 ends the episode.
Observation ThreeTurns(const Reset&, const Step& step) {
  Observation out;
  out.set_reward(0.25 * static_cast<double>(step.text().size()));
  out.set_done(step.turn() == 3 || absl::StrContains(step.text(), "7"));
  if (!out.done()) out.add_messages()->set_content(absl::StrCat(step.turn()));
  return out;
}

// A number that differs between the episodes of a group, and between their attempts.
uint64_t NumberOf(const Reset& reset) {
  return (reset.seed() >> 8) + static_cast<uint64_t>(reset.sample()) * 7 +
         static_cast<uint64_t>(reset.attempt()) * 3;
}

// Notes every turn that the environment answers.
struct Witness {
  absl::Mutex mu;
  using Key = std::tuple<uint64_t, int64_t, int64_t>;  // seed, sample and attempt
  std::map<Key, Turns> turns ABSL_GUARDED_BY(mu);

  Observation Note(const Reset& reset, const Step& step) {
    absl::MutexLock lock(&mu);
    Turns& of_episode = turns[{reset.seed(), reset.sample(), reset.attempt()}];
    of_episode.resize(step.turn());  // a turn that a death cost comes again
    of_episode.back().assign(step.token_ids().begin(), step.token_ids().end());
    return ThreeTurns(reset, step);
  }
};

TEST_F(EpisodesRun, EverySampledTokenIsTrainedOnOnceOrAccountedFor) {
  Witness witness;
  FakeEnvironment environment(
      {.step = [&](const Reset& reset, const Step& step) { return witness.Note(reset, step); },
       .delay = [](const Reset& reset,
                   const Step&) { return absl::Milliseconds(NumberOf(reset) % 40); },
       .fails = [](const Reset& reset,
                   const Step& step) -> std::optional<environment::v1::EpisodeErrorCode> {
         if (step.turn() != 2) return std::nullopt;
         if (NumberOf(reset) % 4 == 1) return environment::v1::EPISODE_ERROR_CODE_RESTART;
         if (NumberOf(reset) % 32 == 2) return environment::v1::EPISODE_ERROR_CODE_DROP;
         return std::nullopt;
       },
       .dies_at = 20});

  const ProgramResult run = RunProgram(
      "tandem", Args({"environment.name=service", "environment.endpoint=" + environment.address(),
                      "reward.name=environment", "trainer.total_steps=3"}));

  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::vector<json> steps = Metrics();
  ASSERT_EQ(steps.size(), 3u);
  for (const json& step : steps) {
    EXPECT_EQ(step["training/rollout_probs_diff_max"], 0.0) << step;
    EXPECT_GT(step["actor/grad_norm"], 0.0);
    EXPECT_GT(step["environment/turns/mean"], 1.0);
    EXPECT_GT(step["environment/cached_prompt_ratio"], 0.0);
  }
  // It died once, and the run went on with the episodes that it had forgotten.
  EXPECT_EQ(environment.counts().deaths, 1);
  EXPECT_GT(environment.counts().restored, 0);
  EXPECT_GE(Sum("environment/broken_streams"), 1);
  EXPECT_GT(Sum("environment/retried_episodes"), 0);

  // Each row is an episode that the environment saw, turn by turn, and no episode is in two rows.
  const std::vector<json> rows = Rows();
  std::multiset<Turns> seen;
  double seen_tokens = 0, sampled_tokens = 0, trained_tokens = 0;
  {
    absl::MutexLock lock(&witness.mu);
    for (const auto& [key, turns] : witness.turns) {
      seen.insert(turns);
      for (const auto& turn : turns) seen_tokens += static_cast<double>(turn.size());
    }
  }
  size_t num_longest = 0;
  for (const json& row : rows) {
    const Turns turns = TurnsOf(row);
    const auto found = seen.find(turns);
    ASSERT_NE(found, seen.end()) << row;
    seen.erase(found);
    num_longest = std::max(num_longest, turns.size());
    double reward = 0;
    for (const json& segment : row["segments"]) {
      EXPECT_EQ(segment["ids"].size(), segment["mask"].size());
      const double mask = segment["kind"] == "sampled" ? 1 : 0;
      for (const json& of_token : segment["mask"]) EXPECT_EQ(of_token, mask);
      if (segment["kind"] != "sampled") continue;
      sampled_tokens += static_cast<double>(segment["ids"].size());
      reward += segment["reward"].get<double>();
      EXPECT_EQ(segment["token_rewards"].back(), segment["reward"]);
      EXPECT_EQ(segment["versions"].back()[2], segment["ids"].size());
    }
    EXPECT_NEAR(row["rewards"].get<double>(), reward, 1e-9);
  }
  EXPECT_EQ(num_longest, 3u);
  // What is left are the episodes that were played again or dropped.
  double lost_tokens = 0;
  for (const Turns& turns : seen) {
    for (const auto& turn : turns) lost_tokens += static_cast<double>(turn.size());
  }
  EXPECT_EQ(seen_tokens, sampled_tokens + lost_tokens);
  EXPECT_LE(lost_tokens, Sum("environment/discarded_tokens"));
  // The trainer trained on exactly the sampled ones.
  for (const json& step : steps) {
    double samples = 0;
    for (const json& row : rows) samples += row["step"] == step["training/global_step"] ? 1 : 0;
    trained_tokens += step["response_length/mean"].get<double>() * samples;
  }
  EXPECT_NEAR(trained_tokens, sampled_tokens, 1e-6 * sampled_tokens);
}

// The share of later turns' prompts that whole blocks of the turn before hold: the last token of a
// turn is sampled and not computed.
double CachedShare(const std::vector<json>& rows, const json& step) {
  double prompts = 0, cached = 0;
  for (const json& row : rows) {
    if (row["step"] != step) continue;
    size_t length = 0, computed = 0;
    for (const json& segment : row["segments"]) {
      const bool is_sampled = segment["kind"] == "sampled";
      if (is_sampled && computed > 0) {
        prompts += static_cast<double>(length);
        cached += static_cast<double>(computed / kBlockSize * kBlockSize);
      }
      length += segment["ids"].size();
      if (is_sampled) computed = length - 1;
    }
  }
  return cached / prompts;
}

TEST_F(EpisodesRun, TheCacheHoldsAllBlocksOfTheTurnBefore) {
  FakeEnvironment environment({.step = ThreeTurns});
  const ProgramResult run = RunProgram(
      "tandem", Args({"environment.name=service", "environment.endpoint=" + environment.address(),
                      "reward.name=environment", "trainer.total_steps=2", "rollout.max_tokens=40",
                      "environment.max_tokens=160"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::vector<json> rows = Rows();
  ASSERT_EQ(Metrics().size(), 2u);
  for (const json& step : Metrics()) {
    const double expected = CachedShare(rows, step["training/global_step"]);
    EXPECT_GT(expected, 0.3);
    // More where samples are alike.
    EXPECT_GE(step["environment/cached_prompt_ratio"].get<double>(), expected - 1e-9);
  }
}

TEST_F(EpisodesRun, AReplayOfItsRowsTrainsTheSameBits) {
  FakeEnvironment environment({.step = ThreeTurns});
  const std::vector<std::string> sets = {
      "environment.name=service", "environment.endpoint=" + environment.address(),
      "reward.name=environment", "algorithm.adv_estimator=reinforce_plus_plus",
      "trainer.total_steps=2"};
  const ProgramResult run = RunProgram("tandem", Args(sets));
  ASSERT_EQ(run.exit_code, 0) << run.err;

  std::vector<std::string> args = Args(sets);
  args[0] = "replay";
  args.insert(args.end(),
              {"--set", "run_dir=" + (folder_ / "replay"), "--input", folder_ / "run/rollouts"});
  const ProgramResult replay = RunProgram("tandem", args);

  ASSERT_EQ(replay.exit_code, 0) << replay.err;
  const std::vector<json> expected = Metrics(), found = Metrics("replay");
  ASSERT_EQ(expected.size(), 2u);
  ASSERT_EQ(found.size(), 2u);
  for (size_t i = 0; i < expected.size(); ++i) {
    for (const char* metric : {"actor/loss", "actor/grad_norm", "critic/advantages/max"}) {
      ASSERT_TRUE(expected[i].contains(metric)) << metric;
      EXPECT_EQ(found[i].value(metric, json()), expected[i][metric]) << metric;
    }
  }
  const std::string weights = ReadWhole(folder_ / "run/model/model.safetensors");
  EXPECT_GT(weights.size(), 1000u);
  EXPECT_TRUE(weights == ReadWhole(folder_ / "replay/model/model.safetensors"));
}

TEST_F(EpisodesRun, ATemplateThatRewritesThePastFailsOrSplits) {
  FakeEnvironment environment({.step = ThreeTurns});
  const std::vector<std::string> sets = {"environment.name=service",
                                         "environment.endpoint=" + environment.address(),
                                         "reward.name=environment", "trainer.total_steps=2"};
  const ProgramResult fails = RunProgram("tandem", Args(sets, kForgetfulTemplate));
  EXPECT_EQ(fails.exit_code, 1);
  EXPECT_THAT(fails.err, AllOf(HasSubstr("the chat template rewrites the past when it adds the "),
                               HasSubstr("environment.on_template_mismatch=split")));

  std::vector<std::string> split = sets;
  split.push_back("environment.on_template_mismatch=split");
  split.push_back("run_dir=" + (folder_ / "run"));
  const ProgramResult run = RunProgram("tandem", Args(split, kForgetfulTemplate));

  ASSERT_EQ(run.exit_code, 0) << run.err;
  for (const json& step : Metrics()) {
    EXPECT_EQ(step["training/rollout_probs_diff_max"], 0.0);
    EXPECT_GT(step["environment/template_rewrites"], 0.0);
  }
  std::map<std::string, std::set<int>> indices;
  size_t num_rows = 0;
  for (const json& row : Rows()) {
    // A prompt and what was sampled after it. A turn of nothing but its end cannot be rewritten.
    const json& segments = row["segments"];
    ASSERT_GE(segments.size(), 2u) << row;
    for (size_t i = 1; i + 1 < segments.size(); ++i) {
      if (segments[i]["kind"] != "sampled") continue;
      EXPECT_EQ(segments[i]["ids"].size(), 1u) << row;
    }
    indices[row["group"]].insert(row["index"].get<int>());
    ++num_rows;
  }
  EXPECT_GT(num_rows, 2u * 4 * 4);
  size_t num_indices = 0;
  for (const auto& [group, of_group] : indices) num_indices += of_group.size();
  EXPECT_EQ(num_indices, num_rows);
}

TEST_F(EpisodesRun, GoesOnInModeAsync) {
  FakeEnvironment environment(
      {.step = ThreeTurns,
       .delay = [](const Reset& reset,
                   const Step&) { return absl::Milliseconds(NumberOf(reset) % 100); },
       .dies_at = 40});
  const ProgramResult run = RunProgram(
      "tandem", Args({"environment.name=service", "environment.endpoint=" + environment.address(),
                      "reward.name=environment", "trainer.mode=async", "trainer.total_steps=3"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(Metrics().size(), 3u);
  EXPECT_EQ(Rows().size(), 3u * 4 * 4);
}

TEST_F(EpisodesRun, TheCalculatorAnswersAPolicysNotation) {
  std::vector<std::string> args =
      Args({"environment.name=calculator", "data.chat_template=false", "rollout.n=8",
            "data.train_batch_size=8", "rollout.max_tokens=24", "trainer.total_steps=3",
            "trainer.test_freq=3", "rollout.val_kwargs.temperature=1"});
  testing::AddToolCallTokens(folder_);

  const ProgramResult run = RunProgram("tandem", args);

  ASSERT_EQ(run.exit_code, 0) << run.err;
  for (const json& step : Metrics()) {
    EXPECT_EQ(step["training/rollout_probs_diff_max"], 0.0) << step;
  }
  EXPECT_GT(Sum("environment/tool_calls/mean"), 0);
  EXPECT_GT(Sum("environment/malformed_tool_calls"), 0);
  // An observation ends with ">>" or says what was wrong with a call.
  std::set<std::string> texts;
  int num_results = 0;
  for (const json& row : Rows()) {
    const std::string text = row["completion"];
    for (size_t i = 0; i + 1 < row["segments"].size(); ++i) {
      if (row["segments"][i + 1]["kind"] == "observation") ++num_results;
    }
    texts.insert(text);
  }
  EXPECT_GT(num_results, 0);
  EXPECT_THAT(texts, Contains(HasSubstr(">>")));
  EXPECT_EQ(Rows("evaluations").size(), 2u * 6);
}

TEST_F(EpisodesRun, AnEnvironmentThatIsNotThereIsFoundBeforeAnythingStarts) {
  std::vector<std::string> args = Args({"environment.name=service"});
  const ProgramResult unnamed = RunProgram("tandem", args);
  EXPECT_EQ(unnamed.exit_code, 2);
  EXPECT_THAT(unnamed.err, HasSubstr("environment.endpoint: expected HOST:PORT"));
  args = Args({"environment.name=service", "environment.endpoint=127.0.0.1:1"});
  args.push_back("--dry-run");
  const ProgramResult missing = RunProgram("tandem", args);
  EXPECT_EQ(missing.exit_code, 1) << missing.err;
  EXPECT_THAT(missing.err, HasSubstr("no EnvironmentService answered at 127.0.0.1:1"));
  const ProgramResult unknown = RunProgram("tandem", Args({"environment.name=maze"}));
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("environment.name"));
  const ProgramResult rewardless = RunProgram("tandem", Args({"reward.name=environment"}));
  EXPECT_EQ(rewardless.exit_code, 2);
  EXPECT_THAT(rewardless.err, HasSubstr("environment needs environment.name service or agent"));
}

}  // namespace
}  // namespace tandem
