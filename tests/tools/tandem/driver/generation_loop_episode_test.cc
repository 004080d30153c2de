// Episodes of several turns in a generation loop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "tests/support/status_matchers.h"
#include "tests/tools/tandem/driver/generation_loop_fixture.h"
#include "tools/tandem/environment/environment.h"

namespace tandem::driver {
namespace {

using ::tandem::testing::FakeSampler;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Request = FakeSampler::Request;

// Asks again after the first completion, and adds a token of its own.
class TwoTurns : public Episode {
 public:
  explicit TwoTurns(const Prompt& prompt) { turn_.token_ids = prompt.token_ids; }

  absl::StatusOr<Turn> FirstTurn() override { return turn_; }

  bool Continue(Completion completion, std::function<void()> /*ready*/) override {
    completions_.push_back(std::move(completion));
    return true;
  }

  absl::StatusOr<std::optional<Turn>> NextTurn() override {
    if (completions_.size() == 2) return std::nullopt;
    if (completions_[0].text == "?") return absl::NotFoundError("no such tool");
    const std::vector<uint32_t>& said = completions_[0].token_ids;
    turn_.token_ids.insert(turn_.token_ids.end(), said.begin(), said.end());
    turn_.token_ids.push_back(99);
    return turn_;
  }

  Completion Take() override { return std::move(completions_[1]); }

 private:
  Turn turn_;
  std::vector<Completion> completions_;
};

std::unique_ptr<Episode> MakeTwoTurns(const Prompt& prompt, const EpisodeNumber& /*number*/) {
  return std::make_unique<TwoTurns>(prompt);
}

TEST_F(GenerationLoopTest, AnEpisodeOfTwoTurnsRunsThroughTheLoop) {
  config_.mutable_data()->set_train_batch_size(1);
  sampler_.sample = [](const Request& request) {
    if (request.options.sampling.n() == 2) return FakeSampler::Pair("0", "0");
    Group out;
    out.completions = {FakeSampler::Of("3")};
    return out;
  };
  GenerationLoop::Options options = LoopOptions();
  options.make_episode = MakeTwoTurns;
  GenerationLoop loop(options);

  ASSERT_OK_AND_ASSIGN(const StepBatch batch, loop.Take(1, 0, KeepWaiting));

  ASSERT_EQ(batch.groups.size(), 1u);
  ASSERT_EQ(batch.groups[0].completions.size(), 2u);
  for (const Completion& completion : batch.groups[0].completions) {
    EXPECT_EQ(completion.reward, 3);  // of the second turn
  }
  // The first turn is one request; of the second there is one for each episode.
  const std::vector<Request> requests = sampler_.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].options.sampling.n(), 2);
  EXPECT_THAT(requests[0].turn.token_ids, ElementsAre(1, 0));
  for (const size_t i : {1, 2}) {
    EXPECT_EQ(requests[i].options.sampling.n(), 1);
    EXPECT_THAT(requests[i].turn.token_ids, ElementsAre(1, 0, 7, 99));
  }
  EXPECT_EQ(Seeds().size(), 3u);
}

TEST_F(GenerationLoopTest, AnEpisodeThatFailsNamesTheRow) {
  sampler_.sample = [](const Request& request) {
    return FakeSampler::Pair(request.row() == 2 ? "?" : "0", "0");
  };
  sampler_.holds = [](const Request& request) { return request.options.sampling.n() == 1; };
  GenerationLoop::Options options = LoopOptions();
  options.make_episode = MakeTwoTurns;
  GenerationLoop loop(options);
  EXPECT_THAT(loop.Take(1, 0, KeepWaiting).status(),
              StatusIs(absl::StatusCode::kNotFound,
                       AllOf(HasSubstr("no such tool"), HasSubstr("row 3 of the data set"))));
}

// Its environment answers later, on a thread of the test, with `error` or the end.
class Waiting : public Episode {
 public:
  struct Environment {
    absl::Mutex mu;
    std::vector<std::function<void()>> waiting ABSL_GUARDED_BY(mu);
    // Of the n-th episode of a row, counted from 0.
    std::function<absl::Status(int64_t row, int n)> error = [](int64_t, int) {
      return absl::OkStatus();
    };
    std::map<int64_t, int> made ABSL_GUARDED_BY(mu);

    bool AwaitWaiting(size_t count) {
      absl::MutexLock lock(&mu);
      const auto enough = [&] {
        mu.AssertHeld();
        return waiting.size() >= count;
      };
      return mu.AwaitWithTimeout(absl::Condition(&enough), absl::Minutes(1));
    }
    void AnswerAll() {
      std::vector<std::function<void()>> all;
      {
        absl::MutexLock lock(&mu);
        all.swap(waiting);
      }
      for (const auto& ready : all) ready();
    }
  };

  Waiting(const Prompt& prompt, Environment& environment, bool waits)
      : prompt_(prompt), environment_(environment), waits_(waits) {
    absl::MutexLock lock(&environment.mu);
    number_ = environment.made[prompt.row]++;
  }

  absl::StatusOr<Turn> FirstTurn() override {
    Turn turn;
    turn.token_ids = prompt_.token_ids;
    return turn;
  }
  bool Continue(Completion completion, std::function<void()> ready) override {
    completion_ = std::move(completion);
    if (!waits_) return true;
    absl::MutexLock lock(&environment_.mu);
    environment_.waiting.push_back(std::move(ready));
    return false;
  }
  absl::StatusOr<std::optional<Turn>> NextTurn() override {
    if (absl::Status error = environment_.error(prompt_.row, number_); !error.ok()) return error;
    return std::nullopt;
  }
  Completion Take() override { return std::move(completion_); }

 private:
  const Prompt& prompt_;
  Environment& environment_;
  const bool waits_;
  int number_ = 0;
  Completion completion_;
};

TEST_F(GenerationLoopTest, EpisodesThatWaitHoldNoThread) {
  // More episodes than the loop has threads.
  config_.mutable_data()->set_train_batch_size(40);
  Waiting::Environment environment;
  GenerationLoop::Options options = LoopOptions();
  options.make_episode = [&](const Prompt& prompt, const EpisodeNumber&) {
    return std::make_unique<Waiting>(prompt, environment, /*waits=*/true);
  };
  GenerationLoop loop(options);
  ASSERT_TRUE(environment.AwaitWaiting(80));
  environment.AnswerAll();
  ASSERT_OK_AND_ASSIGN(const StepBatch batch, loop.Take(1, 0, KeepWaiting));
  EXPECT_EQ(batch.groups.size(), 40u);
}

TEST_F(GenerationLoopTest, AnEnvironmentMayAnswerAfterTheLoopHasEnded) {
  Waiting::Environment environment;
  {
    GenerationLoop::Options options = LoopOptions();
    options.make_episode = [&](const Prompt& prompt, const EpisodeNumber&) {
      return std::make_unique<Waiting>(prompt, environment, /*waits=*/true);
    };
    GenerationLoop loop(options);
    ASSERT_TRUE(environment.AwaitWaiting(8));
  }
  environment.AnswerAll();
}

TEST_F(GenerationLoopTest, ALostEpisodeIsPlayedAgainAndCounted) {
  config_.mutable_environment()->set_name(config::v1::ENVIRONMENT_NAME_CALCULATOR);
  Waiting::Environment environment;
  // The first two episodes of row 1 are lost, and the first one that takes their place.
  environment.error = [](int64_t row, int n) {
    return row == 1 && n < 3 ? environment::MayPlayAgain(absl::AbortedError("lost"))
                             : absl::OkStatus();
  };
  sampler_.sample = [](const Request& request) {
    if (request.options.sampling.n() == 2) return FakeSampler::Pair("0", "1");
    Group out;
    out.completions = {FakeSampler::Of("2")};
    return out;
  };
  GenerationLoop::Options options = LoopOptions();
  options.make_episode = [&](const Prompt& prompt, const EpisodeNumber&) {
    return std::make_unique<Waiting>(prompt, environment, /*waits=*/false);
  };
  GenerationLoop loop(options);

  ASSERT_OK_AND_ASSIGN(const StepBatch batch, loop.Take(1, 0, KeepWaiting));

  EXPECT_THAT(Rows(batch), ElementsAre(0, 1, 2, 3));
  for (const Completion& completion : batch.groups[1].completions) {
    EXPECT_EQ(completion.reward, 2);  // never a zero of the lost one
  }
  EXPECT_EQ(batch.metrics.at("environment/retried_episodes"), 3);
  EXPECT_EQ(batch.metrics.at("environment/dropped_groups"), 0);
  EXPECT_EQ(batch.metrics.at("environment/discarded_tokens"), 3);
  // Four for the groups, three for the episodes that were played again; each with its own seed.
  EXPECT_EQ(sampler_.requests().size(), 7u);
  std::set<std::pair<int64_t, uint64_t>> seeds;
  for (const Request& request : sampler_.requests()) {
    seeds.insert({request.row(), request.options.sampling.seed()});
  }
  EXPECT_EQ(seeds.size(), 7u);
}

TEST_F(GenerationLoopTest, AnEpisodeThatIsLostForGoodIsDroppedWithItsGroup) {
  config_.mutable_environment()->set_name(config::v1::ENVIRONMENT_NAME_CALCULATOR);
  Waiting::Environment environment;
  environment.error = [](int64_t row, int) {
    return row == 1   ? environment::DropEpisode(absl::AbortedError("gone"))
           : row == 2 ? environment::MayPlayAgain(absl::AbortedError("always lost"))
                      : absl::OkStatus();
  };
  sampler_.sample = [](const Request& request) {
    if (request.options.sampling.n() == 2) return FakeSampler::Pair("0", "1");
    Group out;
    out.completions = {FakeSampler::Of("2")};
    return out;
  };
  for (const bool is_async : {false, true}) {
    prompts_->Seek(0);
    if (is_async) SetAsync(/*batch_size=*/4, /*max_staleness=*/0);
    GenerationLoop::Options options = LoopOptions();
    options.make_episode = [&](const Prompt& prompt, const EpisodeNumber&) {
      return std::make_unique<Waiting>(prompt, environment, /*waits=*/false);
    };
    GenerationLoop loop(options);

    ASSERT_OK_AND_ASSIGN(const StepBatch batch, loop.Take(1, 0, KeepWaiting));

    // In mode async other prompts take their places.
    EXPECT_EQ(Rows(batch),
              is_async ? (std::vector<int64_t>{0, 3, 4, 5}) : (std::vector<int64_t>{0, 3}));
    EXPECT_EQ(batch.metrics.at("environment/dropped_groups"), 2);
    EXPECT_GT(batch.metrics.at("environment/discarded_tokens"), 0);
  }
}

TEST_F(GenerationLoopTest, AnEnvironmentThatLosesEverythingEndsTheRun) {
  config_.mutable_environment()->set_name(config::v1::ENVIRONMENT_NAME_CALCULATOR);
  SetAsync(/*batch_size=*/4, /*max_staleness=*/1);
  Waiting::Environment environment;
  environment.error = [](int64_t, int) {
    return environment::DropEpisode(absl::AbortedError("no disk"));
  };
  GenerationLoop::Options options = LoopOptions();
  options.make_episode = [&](const Prompt& prompt, const EpisodeNumber&) {
    return std::make_unique<Waiting>(prompt, environment, /*waits=*/false);
  };
  GenerationLoop loop(options);
  EXPECT_THAT(loop.Take(1, 0, KeepWaiting).status(),
              StatusIs(absl::StatusCode::kAborted,
                       AllOf(HasSubstr("lost 64 groups"), HasSubstr("no disk"))));
}

}  // namespace
}  // namespace tandem::driver
