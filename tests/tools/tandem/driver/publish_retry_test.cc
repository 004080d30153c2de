#include "tools/tandem/driver/publish_retry.h"

#include <gtest/gtest.h>

#include "common/rpc/status_conversion.h"
#include "tools/tandem/driver/trainer_client.h"

namespace tandem::driver {
namespace {

constexpr absl::Duration kRetryFor = absl::Minutes(10);

absl::Status ToNobody(absl::StatusCode code) {
  return rpc::WithReason(absl::Status(code, "replica r1 ..."), kPublishedToNobody);
}

TEST(PublishRetry, WhatSomethingElseHasEndedIsTriedAgainUntilPatienceEnds) {
  for (const auto code : {absl::StatusCode::kUnavailable, absl::StatusCode::kDeadlineExceeded,
                          absl::StatusCode::kCancelled, absl::StatusCode::kAborted}) {
    const absl::Time start = absl::UnixEpoch();
    PublishRetry retry(start, kRetryFor);
    for (int i = 1; i < 10; ++i) {
      EXPECT_TRUE(retry.MayTryAgain(ToNobody(code), start + absl::Minutes(i))) << code;
    }
    EXPECT_FALSE(retry.MayTryAgain(ToNobody(code), start + kRetryFor)) << code;
  }
}

TEST(PublishRetry, AnAttemptThatTookAllThePatienceIsNotTheOnlyOne) {
  const absl::Time start = absl::UnixEpoch();
  PublishRetry retry(start, kRetryFor);
  EXPECT_TRUE(retry.MayTryAgain(ToNobody(absl::StatusCode::kUnavailable), start + kRetryFor));
  EXPECT_FALSE(retry.MayTryAgain(ToNobody(absl::StatusCode::kUnavailable), start + kRetryFor));
}

TEST(PublishRetry, ATrainerThatDoesNotAnswerIsNotWaitedForSoLong) {
  const absl::Time start = absl::UnixEpoch();
  PublishRetry retry(start, kRetryFor);
  const absl::Status refused = absl::UnavailableError("connection refused");
  EXPECT_TRUE(retry.MayTryAgain(refused, start));
  EXPECT_TRUE(retry.MayTryAgain(refused, start));
  EXPECT_TRUE(retry.MayTryAgain(ToNobody(absl::StatusCode::kUnavailable), start));
  EXPECT_TRUE(retry.MayTryAgain(refused, start));
  EXPECT_TRUE(retry.MayTryAgain(refused, start));
  EXPECT_FALSE(retry.MayTryAgain(refused, start));
}

TEST(PublishRetry, AnErrorOfTheRunEndsIt) {
  PublishRetry retry(absl::UnixEpoch(), kRetryFor);
  EXPECT_FALSE(
      retry.MayTryAgain(ToNobody(absl::StatusCode::kFailedPrecondition), absl::UnixEpoch()));
}

}  // namespace
}  // namespace tandem::driver
