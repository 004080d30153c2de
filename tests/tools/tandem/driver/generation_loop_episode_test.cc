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

// Samples by itself, on a thread of the test, which may be cut off.
class SelfPlaying : public Episode {
 public:
  struct Plays {
    absl::Mutex mu;
    std::vector<std::function<void()>> waiting ABSL_GUARDED_BY(mu);
    std::set<uint64_t> seeds ABSL_GUARDED_BY(mu);
    int num_begun ABSL_GUARDED_BY(mu) = 0;
    int num_cut_off ABSL_GUARDED_BY(mu) = 0;
    // Of the n-th attempt at a sample of a row.
    std::function<absl::Status(int64_t row, const EpisodeNumber&)> error;
    bool waits = false;
  };

  SelfPlaying(const Prompt& prompt, const EpisodeNumber& number, Plays& plays)
      : row_(prompt.row), number_(number), plays_(plays) {}

  bool plays_itself() const override { return true; }
  std::function<void()> Play(const rollout::v1::SamplingParams& sampling,
                             std::function<void()> ready) override {
    EXPECT_EQ(sampling.n(), 1);
    {
      absl::MutexLock lock(&plays_.mu);
      ++plays_.num_begun;
      plays_.seeds.insert(sampling.seed());
      if (plays_.waits) plays_.waiting.push_back(ready);
    }
    if (!plays_.waits) ready();
    return [this] {
      absl::MutexLock lock(&plays_.mu);
      ++plays_.num_cut_off;
    };
  }
  int64_t num_played_tokens() const override { return 5; }
  absl::StatusOr<Turn> FirstTurn() override { return absl::InternalError("plays itself"); }
  bool Continue(Completion, std::function<void()>) override { return true; }
  absl::StatusOr<std::optional<Turn>> NextTurn() override {
    if (plays_.error != nullptr) {
      if (absl::Status error = plays_.error(row_, number_); !error.ok()) return error;
    }
    return std::nullopt;
  }
  Completion Take() override { return FakeSampler::Of(number_.attempt == 0 ? "1" : "2"); }

 private:
  const int64_t row_;
  const EpisodeNumber number_;
  Plays& plays_;
};

TEST_F(GenerationLoopTest, EpisodesThatPlayThemselvesAskForNothing) {
  config_.mutable_environment()->set_name(config::v1::ENVIRONMENT_NAME_AGENT);
  SelfPlaying::Plays plays;
  plays.error = [](int64_t row, const EpisodeNumber& number) {
    if (row == 1 && number.sample == 0 && number.attempt == 0) {
      return environment::MayPlayAgain(absl::UnavailableError("exited with 1"));
    }
    return row == 2 && number.sample == 1
               ? environment::DropEpisode(absl::UnavailableError("exited with 1"))
               : absl::OkStatus();
  };
  int64_t progress = 0;
  absl::Mutex mu;
  GenerationLoop::Options options = LoopOptions();
  options.on_tokens = [&](int64_t tokens) {
    absl::MutexLock lock(&mu);
    progress += tokens;
  };
  options.make_episode = [&](const Prompt& prompt, const EpisodeNumber& number) {
    return std::make_unique<SelfPlaying>(prompt, number, plays);
  };
  GenerationLoop loop(options);

  ASSERT_OK_AND_ASSIGN(const StepBatch batch, loop.Take(1, 0, KeepWaiting));

  EXPECT_TRUE(sampler_.requests().empty());
  EXPECT_THAT(Rows(batch), ElementsAre(0, 1, 3));
  EXPECT_EQ(batch.groups[1].completions[0].reward, 2);  // of its second program
  EXPECT_EQ(batch.groups[1].completions[1].reward, 1);
  EXPECT_EQ(batch.metrics.at("environment/retried_episodes"), 1);
  EXPECT_EQ(batch.metrics.at("environment/dropped_groups"), 1);
  // The program that failed first, and at least the one that was dropped.
  EXPECT_GE(batch.metrics.at("environment/discarded_tokens"), 5 + 5);
  absl::MutexLock lock(&plays.mu);
  EXPECT_EQ(plays.num_begun, 9);
  EXPECT_EQ(plays.seeds.size(), 9u);
  absl::MutexLock progress_lock(&mu);
  EXPECT_GE(progress, 8 * 5);
}

TEST_F(GenerationLoopTest, EpisodesThatPlayThemselvesAreCutOffWithTheLoop) {
  config_.mutable_environment()->set_name(config::v1::ENVIRONMENT_NAME_AGENT);
  SelfPlaying::Plays plays;
  plays.waits = true;
  {
    GenerationLoop::Options options = LoopOptions();
    options.make_episode = [&](const Prompt& prompt, const EpisodeNumber& number) {
      return std::make_unique<SelfPlaying>(prompt, number, plays);
    };
    GenerationLoop loop(options);
    absl::MutexLock lock(&plays.mu);
    const auto all_play = [&plays] {
      plays.mu.AssertHeld();
      return plays.num_begun == 8;
    };
    ASSERT_TRUE(plays.mu.AwaitWithTimeout(absl::Condition(&all_play), absl::Minutes(1)));
  }
  std::vector<std::function<void()>> waiting;
  {
    absl::MutexLock lock(&plays.mu);
    EXPECT_EQ(plays.num_cut_off, 8);
    waiting.swap(plays.waiting);
  }
  for (const auto& ready : waiting) ready();  // too late
}

}  // namespace
}  // namespace tandem::driver
