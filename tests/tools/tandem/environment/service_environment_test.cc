// Episodes with an EnvironmentService that delays, fails and dies.
#include "tools/tandem/environment/service_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "tests/fakes/fake_environment.h"
#include "tests/support/status_matchers.h"

namespace tandem::environment {
namespace {

using ::tandem::testing::FakeEnvironment;
using ::tandem::testing::StatusIs;
using ::testing::HasSubstr;

// Answers with the number of turns that it knows of.
v1::Observation CountTurns(const v1::Reset& reset, const v1::Step& step) {
  v1::Observation out;
  out.add_messages()->set_content(
      absl::StrCat(step.text(), "#", step.turn(), " after ", reset.past_size()));
  out.set_reward(0.5);
  out.set_done(step.text() == "end");
  return out;
}

struct Player {
  std::unique_ptr<Environment> environment;

  // Waits for the answer.
  absl::StatusOr<Reply> Step(const SampledTurn& turn) {
    absl::Notification answered;
    absl::StatusOr<Reply> reply = absl::UnknownError("no answer");
    const auto at_once = environment->Step(turn, [&](absl::StatusOr<Reply> later) {
      reply = std::move(later);
      answered.Notify();
    });
    EXPECT_FALSE(at_once.has_value());
    EXPECT_TRUE(answered.WaitForNotificationWithTimeout(absl::Minutes(1)));
    return reply;
  }
};

class ServiceEnvironmentTest : public ::testing::Test {
 protected:
  void Serve(FakeEnvironment::Options options, absl::Duration timeout = absl::Seconds(30)) {
    if (options.step == nullptr) options.step = CountTurns;
    fake_ = std::make_unique<FakeEnvironment>(std::move(options));
    client_ = std::make_shared<EnvironmentClient>(
        EnvironmentClient::Options{.endpoint = fake_->address()});
    timeout_ = timeout;
  }
  void TearDown() override {
    if (client_ != nullptr) client_->Shutdown();
  }

  Player Begin() { return {MakeServiceEnvironment(client_, v1::Reset(), timeout_)}; }

  std::unique_ptr<FakeEnvironment> fake_;
  std::shared_ptr<EnvironmentClient> client_;
  absl::Duration timeout_;
};

TEST_F(ServiceEnvironmentTest, PlaysTurnAfterTurn) {
  Serve({});
  Player player = Begin();
  ASSERT_OK_AND_ASSIGN(const Reply first, player.Step({.number = 1, .text = "a"}));
  EXPECT_EQ(first.messages[0]["content"], "a#1 after 0");
  EXPECT_EQ(first.messages[0]["role"], "tool");
  EXPECT_EQ(first.reward, 0.5);
  EXPECT_FALSE(first.done);
  ASSERT_OK_AND_ASSIGN(const Reply second, player.Step({.number = 2, .text = "end"}));
  EXPECT_TRUE(second.done);
  EXPECT_EQ(fake_->counts().resets, 1);
  EXPECT_EQ(fake_->counts().steps, 2);
}

TEST_F(ServiceEnvironmentTest, ASlowEpisodeDelaysNoOther) {
  Serve({.delay = [](const v1::Reset&, const v1::Step& step) {
    return step.text() == "slow" ? absl::Minutes(10) : absl::ZeroDuration();
  }});
  Player slow = Begin();
  slow.environment->Step({.text = "slow"}, [](auto) {});
  for (int i = 0; i < 50; ++i) {
    Player quick = Begin();
    ASSERT_OK(quick.Step({.text = "quick"}).status());
  }
  EXPECT_EQ(fake_->counts().steps, 50);
  client_->Shutdown();  // ends the slow one
}

TEST_F(ServiceEnvironmentTest, ADeathCostsTheTurnUnderWayOnly) {
  Serve({.dies_at = 2});
  Player player = Begin();
  ASSERT_OK(player.Step({.number = 1, .text = "a"}).status());
  // It dies before it answers, and has forgotten the episode afterwards.
  ASSERT_OK_AND_ASSIGN(const Reply reply, player.Step({.number = 2, .text = "b"}));
  EXPECT_EQ(reply.messages[0]["content"], "b#2 after 1");
  EXPECT_EQ(fake_->counts().deaths, 1);
  EXPECT_EQ(fake_->counts().restored, 1);
  EXPECT_EQ(client_->TakeBreaks(), 1);
}

TEST_F(ServiceEnvironmentTest, ADeathBetweenTwoTurnsCostsNothing) {
  Serve({});
  Player player = Begin();
  ASSERT_OK(player.Step({.number = 1, .text = "a"}).status());
  fake_->Die();
  ASSERT_OK_AND_ASSIGN(const Reply reply, player.Step({.number = 2, .text = "b"}));
  EXPECT_EQ(reply.messages[0]["content"], "b#2 after 1");
}

TEST_F(ServiceEnvironmentTest, TheErrorSaysWhetherTheEpisodeMayBePlayedAgain) {
  const std::pair<v1::EpisodeErrorCode, Loss> cases[] = {
      {v1::EPISODE_ERROR_CODE_RETRY, Loss::kPlayAgain},  // in vain
      {v1::EPISODE_ERROR_CODE_RESTART, Loss::kPlayAgain},
      {v1::EPISODE_ERROR_CODE_DROP, Loss::kDrop},
      {v1::EPISODE_ERROR_CODE_UNSPECIFIED, Loss::kDrop},
      {v1::EPISODE_ERROR_CODE_FATAL, Loss::kNone}};
  for (const auto& [code, loss] : cases) {
    Serve({.fails = [code = code](const v1::Reset&, const v1::Step&) { return code; }});
    Player player = Begin();
    const absl::StatusOr<Reply> reply = player.Step({.text = "a"});
    EXPECT_FALSE(reply.ok());
    EXPECT_EQ(LossOf(reply.status()), loss) << reply.status();
    EXPECT_THAT(std::string(reply.status().message()), HasSubstr("as the test says"));
    EXPECT_EQ(fake_->counts().resets, code == v1::EPISODE_ERROR_CODE_RETRY ? 3 : 1);
    client_->Shutdown();
  }
}

TEST_F(ServiceEnvironmentTest, AnAnswerThatIsLateLosesTheEpisode) {
  Serve({.delay = [](const v1::Reset&, const v1::Step&) { return absl::Minutes(10); }},
        absl::Milliseconds(300));
  Player player = Begin();
  const absl::StatusOr<Reply> reply = player.Step({.text = "a"});
  EXPECT_THAT(reply.status(), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("in time")));
  EXPECT_EQ(LossOf(reply.status()), Loss::kPlayAgain);
}

TEST_F(ServiceEnvironmentTest, AnEpisodeThatIsOverIsClosed) {
  Serve({});
  {
    Player player = Begin();
    ASSERT_OK(player.Step({.text = "end"}).status());
  }
  Player other = Begin();
  ASSERT_OK(other.Step({.text = "a"}).status());  // comes after the Close on the same stream
  EXPECT_EQ(fake_->counts().closed, 1);
  EXPECT_EQ(fake_->num_episodes(), 1u);
}

TEST_F(ServiceEnvironmentTest, CheckFindsAServiceOrSaysWhatToDo) {
  Serve({});
  EXPECT_OK(client_->Check(absl::Seconds(30), nullptr));
  EnvironmentClient nobody({.endpoint = "127.0.0.1:1"});
  EXPECT_THAT(nobody.Check(absl::Milliseconds(300), nullptr),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       HasSubstr("no EnvironmentService answered at 127.0.0.1:1")));
  EXPECT_THAT(nobody.Check(absl::Minutes(10), [] { return true; }),
              StatusIs(absl::StatusCode::kCancelled, HasSubstr("interrupted")));
}

TEST_F(ServiceEnvironmentTest, AServiceThatDoesNotAnswerPingsIsLost) {
  Serve({});
  // Sends no ping before it counts the service as silent.
  EnvironmentClient client({.endpoint = fake_->address(),
                            .ping_interval = absl::Hours(1),
                            .silence_limit = absl::Milliseconds(200)});
  ASSERT_OK(client.Check(absl::Seconds(30), nullptr));
  const int64_t generation = client.generation();
  while (client.generation() == generation) absl::SleepFor(absl::Milliseconds(10));
  EXPECT_EQ(client.generation(), generation + 1);
}

}  // namespace
}  // namespace tandem::environment
