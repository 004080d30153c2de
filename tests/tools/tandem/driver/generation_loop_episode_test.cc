// Episodes of several turns in a generation loop.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "tests/support/status_matchers.h"
#include "tests/tools/tandem/driver/generation_loop_fixture.h"

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

std::unique_ptr<Episode> MakeTwoTurns(const Prompt& prompt, uint64_t /*seed*/) {
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

}  // namespace
}  // namespace tandem::driver
