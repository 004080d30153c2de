// GenerationLoopTest: a generation loop over a hundred rows whose completions a test answers, and
// whose rewards are the completions' numbers.
#ifndef TANDEM_TESTS_TOOLS_TANDEM_DRIVER_GENERATION_LOOP_FIXTURE_H_
#define TANDEM_TESTS_TOOLS_TANDEM_DRIVER_GENERATION_LOOP_FIXTURE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/config/load.h"
#include "tests/fakes/fake_sampler.h"
#include "tests/support/temp_folder.h"
#include "tools/tandem/driver/generation_loop.h"

namespace tandem::driver {

// The reward of a completion is its text, a number.
class NumberRewarder : public Rewarder {
 public:
  absl::Status Judge(std::vector<Group>& groups) override {
    for (Group& group : groups) {
      if (before) {
        if (absl::Status status = before(group); !status.ok()) return status;
      }
      if (fails != nullptr && fails(group)) {
        group.judgement = absl::UnavailableError("the judge is away");
        group.num_failed_judgements = 1;
      }
      for (Completion* completion : group.judged()) {
        completion->score = completion->reward = std::stod(completion->text);
      }
      absl::MutexLock lock(&mu_);
      rows_.insert(group.prompt.row);
    }
    return absl::OkStatus();
  }

  // Waits until `count` rows have been judged; an error after a minute.
  absl::Status AwaitJudged(size_t count) {
    absl::MutexLock lock(&mu_);
    const auto enough = [&] {
      mu_.AssertHeld();
      return rows_.size() >= count;
    };
    if (mu_.AwaitWithTimeout(absl::Condition(&enough), absl::Minutes(1))) return absl::OkStatus();
    return absl::DeadlineExceededError(absl::StrCat("judged ", rows_.size(), " of ", count));
  }

  // Set before the loop begins.
  std::function<absl::Status(const Group&)> before;
  std::function<bool(const Group&)> fails;  // whether a judge fails for the group

 private:
  absl::Mutex mu_;
  std::set<int64_t> rows_ ABSL_GUARDED_BY(mu_);
};

inline absl::Status KeepWaiting() { return absl::OkStatus(); }

inline std::vector<int64_t> Rows(const StepBatch& batch) {
  std::vector<int64_t> rows;
  for (const Group& group : batch.groups) rows.push_back(group.prompt.row);
  return rows;
}

class GenerationLoopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    config_ = config::DefaultRunConfig();
    config_.mutable_data()->set_train_batch_size(4);
    config_.mutable_rollout()->set_n(2);
    config_.mutable_rollout()->set_max_tokens(10);
    for (int i = 0; i < 100; ++i) {
      absl::StrAppend(&rows_, R"({"prompt": [1, )", i, R"(], "answer": "a"})", "\n");
    }
    prompts_.emplace(Source());
  }

  PromptSource Source() {
    config::v1::DataConfig data = config_.data();
    data.set_shuffle(false);
    auto source = PromptSource::Load({folder_.Write("rows.jsonl", rows_)}, data, nullptr, 0);
    return *std::move(source);
  }

  void SetAsync(int64_t batch_size, int64_t max_staleness) {
    config_.mutable_data()->set_train_batch_size(batch_size);
    config_.mutable_trainer()->set_mode(config::v1::TRAINING_MODE_ASYNC);
    config_.mutable_trainer()->set_max_staleness(max_staleness);
  }

  GenerationLoop::Options LoopOptions(int64_t first_step = 1) {
    return {.config = config_,
            .prompts = *prompts_,
            .rewarder = rewarder_,
            .sampler = sampler_.sampler(),
            .first_step = first_step,
            .num_batches = 100,
            .interrupted = [this] { return interrupted_.load(); }};
  }

  absl::StatusOr<StepBatch> Collect(int64_t step = 1) {
    GenerationLoop loop(LoopOptions(step));
    return loop.Take(step, /*version=*/0, KeepWaiting);
  }

  // Seeds of the samplers' requests.
  std::set<uint64_t> Seeds() const {
    std::set<uint64_t> seeds;
    for (const testing::FakeSampler::Request& request : sampler_.requests()) {
      seeds.insert(request.options.sampling.seed());
    }
    return seeds;
  }

  const testing::TempFolder folder_;
  config::v1::RunConfig config_;
  std::string rows_;
  std::optional<PromptSource> prompts_;
  NumberRewarder rewarder_;
  testing::FakeSampler sampler_;
  std::atomic<bool> interrupted_{false};
};

}  // namespace tandem::driver

#endif  // TANDEM_TESTS_TOOLS_TANDEM_DRIVER_GENERATION_LOOP_FIXTURE_H_
