#include "services/trainer/service/trainer_status.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/status_matchers.h"

namespace tandem::trainer {
namespace {

TEST(TrainerStatus, TellsAWatcherThePresentStateFirstAndThenEveryChange) {
  TrainerStatus status;
  status.SetState(v1::TRAINER_STATE_READY);
  std::vector<v1::TrainerState> seen;
  const int64_t id = status.Subscribe([&](const v1::WatchResponse& response, const absl::Status*) {
    seen.push_back(response.state());
  });

  status.SetState(v1::TRAINER_STATE_TRAINING);
  status.SetState(v1::TRAINER_STATE_READY);
  status.Unsubscribe(id);
  status.SetState(v1::TRAINER_STATE_TRAINING);

  EXPECT_EQ(seen,
            std::vector<v1::TrainerState>(
                {v1::TRAINER_STATE_READY, v1::TRAINER_STATE_TRAINING, v1::TRAINER_STATE_READY}));
}

TEST(TrainerStatus, StaysFailedWithTheFirstError) {
  TrainerStatus status;
  status.SetFailed(absl::UnavailableError("rank 1 was lost"));
  status.SetFailed(absl::UnavailableError("rank 2 was lost"));
  status.SetState(v1::TRAINER_STATE_READY);
  status.Close(absl::UnavailableError("stopping"));

  EXPECT_EQ(status.Get().state(), v1::TRAINER_STATE_FAILED);
  EXPECT_EQ(status.Get().error(), "rank 1 was lost");
  EXPECT_EQ(status.Refusal().message(), "rank 1 was lost");
}

TEST(TrainerStatus, EndsStreamsThatBeginAfterItWasClosed) {
  TrainerStatus status;
  status.Close(absl::UnavailableError("stopping"));
  bool ended = false;
  status.Subscribe([&](const v1::WatchResponse& response, const absl::Status* end) {
    EXPECT_EQ(response.state(), v1::TRAINER_STATE_DRAINING);
    ended = end != nullptr;
  });
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace tandem::trainer
