#include "tools/tandem/driver/batch_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "common/config/load.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The reward of a completion is its text, a number.
class NumberRewarder : public Rewarder {
 public:
  absl::Status Judge(std::vector<Group>& groups) override {
    for (Group& group : groups) {
      for (Completion* completion : group.judged()) {
        completion->score = completion->reward = std::stod(completion->text);
      }
    }
    return absl::OkStatus();
  }
};

class BatchCollectorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = config::DefaultRunConfig();
    config_.mutable_data()->set_train_batch_size(4);
    config_.mutable_rollout()->set_n(2);
    config_.mutable_rollout()->set_max_tokens(10);
    std::string rows;
    for (int i = 0; i < 100; ++i)
      rows += R"({"prompt": [1, 2], "answer": "a"})"
              "\n";
    config::v1::DataConfig data = config_.data();
    data.set_shuffle(false);
    auto source = PromptSource::Load({folder_.Write("rows.jsonl", rows)}, data, nullptr, 0);
    ASSERT_OK(source.status());
    prompts_.emplace(*std::move(source));
  }

  absl::StatusOr<StepBatch> Collect(int64_t step = 1) {
    BatchCollector collector(config_, *prompts_, rewarder_, [this] { return interrupted_; });
    return collector.Collect(
        step, [this](std::vector<Prompt> prompts, const RolloutFleet::GenerateOptions& options) {
          seeds_.insert(options.sampling.seed());
          num_calls_++;
          std::vector<Group> groups(prompts.size());
          for (size_t i = 0; i < prompts.size(); ++i) {
            groups[i] = sample_(prompts[i]);
            if (options.baseline.has_value()) {
              EXPECT_EQ(options.baseline->temperature(), 0);
              EXPECT_EQ(options.baseline->n(), 1);
              groups[i].baseline = Of("0.5");
            }
            groups[i].prompt = std::move(prompts[i]);
          }
          return groups;
        });
  }

  static Completion Of(const std::string& text, size_t num_tokens = 1) {
    Completion out;
    out.text = text;
    out.token_ids.assign(num_tokens, 7);
    out.finish_reason = common::v1::FINISH_REASON_STOP;
    return out;
  }

  static Group Pair(const std::string& first, const std::string& second) {
    Group out;
    out.completions = {Of(first), Of(second)};
    return out;
  }

  const TempFolder folder_;
  config::v1::RunConfig config_;
  std::optional<PromptSource> prompts_;
  NumberRewarder rewarder_;
  std::function<Group(const Prompt&)> sample_ = [](const Prompt&) { return Pair("0", "1"); };
  bool interrupted_ = false;
  int num_calls_ = 0;
  std::set<uint64_t> seeds_;
};

TEST_F(BatchCollectorTest, JudgesTheGroupsOfOneBatch) {
  ASSERT_OK_AND_ASSIGN(const StepBatch batch, Collect());
  ASSERT_EQ(batch.groups.size(), 4u);
  EXPECT_EQ(batch.groups[0].completions[1].reward, 1);
  EXPECT_EQ(batch.metrics.at("rollout/judged_reward/mean"), 0.5);
  EXPECT_EQ(batch.metrics.count("train/num_gen_batches"), 0u);
  EXPECT_FALSE(batch.groups[0].baseline.has_value());
}

TEST_F(BatchCollectorTest, DropsAGroupThatWasAborted) {
  sample_ = [](const Prompt& prompt) {
    Group out = Pair("0", "1");
    if (prompt.row == 2) out.completions[1].finish_reason = common::v1::FINISH_REASON_ABORTED;
    return out;
  };
  ASSERT_OK_AND_ASSIGN(const StepBatch batch, Collect());
  EXPECT_EQ(batch.groups.size(), 3u);
  EXPECT_EQ(batch.metrics.at("rollout/dropped_groups"), 1);
}

TEST_F(BatchCollectorTest, GoesOnUntilEnoughGroupsDifferAndDropsTheSurplus) {
  config_.mutable_algorithm()->mutable_filter_groups()->set_enable(true);
  config_.mutable_data()->set_gen_batch_size(6);
  // Of six rows, three differ.
  sample_ = [](const Prompt& prompt) {
    return prompt.row % 2 == 0 ? Pair("1", "1") : Pair("0", "1");
  };

  ASSERT_OK_AND_ASSIGN(const StepBatch batch, Collect());

  EXPECT_EQ(num_calls_, 2);
  EXPECT_EQ(seeds_.size(), 2u);  // the second batch is sampled with another seed
  ASSERT_EQ(batch.groups.size(), 4u);
  for (size_t g = 0; g < 4; ++g) {
    EXPECT_EQ(batch.groups[g].prompt.row, static_cast<int64_t>(2 * g + 1));
  }
  EXPECT_EQ(batch.metrics.at("train/num_gen_batches"), 2);
  EXPECT_EQ(batch.metrics.at("rollout/filtered_groups"), 6);
  EXPECT_EQ(batch.metrics.at("rollout/surplus_groups"), 2);
  EXPECT_EQ(batch.metrics.at("rollout/judged_reward/mean"), 0.75);  // over all twelve
}

TEST_F(BatchCollectorTest, SaysWhatToDoWhereRewardsAreAlwaysEqual) {
  auto* filter = config_.mutable_algorithm()->mutable_filter_groups();
  filter->set_enable(true);
  filter->set_max_num_gen_batches(3);
  sample_ = [](const Prompt& prompt) { return prompt.row == 5 ? Pair("0", "1") : Pair("1", "1"); };

  EXPECT_THAT(Collect(7).status(),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("step 7: expected 4 groups whose rewards differ"),
                             HasSubstr("found 1 in 3 batches"), HasSubstr("max_num_gen_batches"),
                             HasSubstr("11 whose rewards are all equal"), HasSubstr("rollout.n"))));
  EXPECT_EQ(num_calls_, 3);
}

TEST_F(BatchCollectorTest, EndsAnUnlimitedSearchWhenInterrupted) {
  auto* filter = config_.mutable_algorithm()->mutable_filter_groups();
  filter->set_enable(true);
  filter->set_max_num_gen_batches(0);
  sample_ = [this](const Prompt&) {
    interrupted_ = num_calls_ == 15;
    return Pair("1", "1");
  };
  EXPECT_THAT(Collect().status(), StatusIs(absl::StatusCode::kCancelled, HasSubstr("interrupted")));
  EXPECT_EQ(num_calls_, 15);
}

TEST_F(BatchCollectorTest, FiltersByTheMetricThatIsAskedFor) {
  auto* filter = config_.mutable_algorithm()->mutable_filter_groups();
  filter->set_enable(true);
  filter->set_max_num_gen_batches(1);
  auto* buffer = config_.mutable_reward()->mutable_overlong_buffer();
  buffer->set_enable(true);
  buffer->set_len(4);
  // Equal scores, and one completion is long.
  sample_ = [](const Prompt&) {
    Group out = Pair("1", "1");
    out.completions[1] = Of("1", 9);
    return out;
  };

  filter->set_metric(config::v1::FILTER_METRIC_SEQ_REWARD);
  ASSERT_OK_AND_ASSIGN(const StepBatch batch, Collect());
  EXPECT_EQ(batch.groups[0].completions[1].reward, 0.25);
  EXPECT_EQ(batch.groups[0].completions[1].score, 1);
  EXPECT_EQ(batch.metrics.at("reward/overlong_penalty/mean"), -0.375);
  EXPECT_EQ(batch.metrics.at("reward/overlong_ratio"), 0.5);

  filter->set_metric(config::v1::FILTER_METRIC_ACC);
  EXPECT_THAT(Collect().status(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("found 0")));
}

TEST_F(BatchCollectorTest, JudgesAGreedyCompletionForReMax) {
  config_.mutable_algorithm()->set_adv_estimator(config::v1::ADV_ESTIMATOR_REMAX);
  ASSERT_OK_AND_ASSIGN(const StepBatch batch, Collect());
  EXPECT_EQ(num_calls_, 1);  // asked for together with the group
  for (const Group& group : batch.groups) {
    ASSERT_TRUE(group.baseline.has_value());
    EXPECT_EQ(group.baseline->reward, 0.5);
  }
  EXPECT_EQ(batch.metrics.at("rollout/judged_reward/mean"), 0.5);
}

}  // namespace
}  // namespace tandem::driver
