#include "tools/tandem/driver/publish_retry.h"

#include <gtest/gtest.h>

#include "common/rpc/status_conversion.h"
#include "tools/tandem/driver/trainer_client.h"

namespace tandem::driver {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(10);

absl::Status ToNobody(absl::StatusCode code) {
  return rpc::WithReason(absl::Status(code, "replica r1 ..."), kPublishedToNobody);
}

TEST(PublishRetry, WhatSomethingElseHasEndedIsTriedAgainUntilPatienceEnds) {
  for (const auto code : {absl::StatusCode::kUnavailable, absl::StatusCode::kDeadlineExceeded,
                          absl::StatusCode::kCancelled, absl::StatusCode::kAborted}) {
    const absl::Time start = absl::UnixEpoch();
    PublishRetry retry(start, kPatience);
    for (int i = 1; i < 10; ++i) {
      EXPECT_TRUE(retry.MayTryAgain(ToNobody(code), start + absl::Minutes(i))) << code;
    }
    EXPECT_FALSE(retry.MayTryAgain(ToNobody(code), start + kPatience)) << code;
  }
}

TEST(PublishRetry, AnAttemptThatTookAllThePatienceIsNotTheOnlyOne) {
  const absl::Time start = absl::UnixEpoch();
  PublishRetry retry(start, kPatience);
  EXPECT_TRUE(retry.MayTryAgain(ToNobody(absl::StatusCode::kUnavailable), start + kPatience));
  EXPECT_FALSE(retry.MayTryAgain(ToNobody(absl::StatusCode::kUnavailable), start + kPatience));
}

TEST(PublishRetry, ATrainerThatDoesNotAnswerIsNotWaitedForSoLong) {
  const absl::Time start = absl::UnixEpoch();
  PublishRetry retry(start, kPatience);
  const absl::Status refused = absl::UnavailableError("connection refused");
  EXPECT_TRUE(retry.MayTryAgain(refused, start));
  EXPECT_TRUE(retry.MayTryAgain(refused, start));
  EXPECT_TRUE(retry.MayTryAgain(ToNobody(absl::StatusCode::kUnavailable), start));
  EXPECT_TRUE(retry.MayTryAgain(refused, start));
  EXPECT_TRUE(retry.MayTryAgain(refused, start));
  EXPECT_FALSE(retry.MayTryAgain(refused, start));
}

TEST(PublishRetry, AnErrorOfTheRunEndsIt) {
  PublishRetry retry(absl::UnixEpoch(), kPatience);
  EXPECT_FALSE(
      retry.MayTryAgain(ToNobody(absl::StatusCode::kFailedPrecondition), absl::UnixEpoch()));
}

}  // namespace
}  // namespace tandem::driver
