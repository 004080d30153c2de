#include "services/trainer/publish/transfer_blame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/rpc/status_conversion.h"

namespace tandem::trainer {
namespace {

using Link = TransferReport::Link;
using ::testing::Eq;
using ::testing::IsEmpty;
using ::testing::Optional;

TransferReport Joining(int replica, Link link) { return {replica, 0, link, false, false, false}; }
TransferReport Receiving(int replica, Link link) { return {replica, 0, link, true, false, false}; }
TransferReport Late(TransferReport report) {
  report.after_abort = true;
  return report;
}

TEST(TransferBlame, ARankThatNeverReachedTheRendezvousIsTheCause) {
  const TransferBlame blame =
      FindBlame({Joining(0, Link::kForward), Joining(1, Link::kRendezvous)}, true, 2);
  ASSERT_EQ(blame.unreached.size(), 1u);
  EXPECT_EQ(blame.unreached[0].replica, 1);
  EXPECT_EQ(blame.broken_link, std::nullopt);
}

TEST(TransferBlame, TheLinkIsWhereThoseThatFeedMeetThoseThatAreFed) {
  for (const auto& report : {&Joining, &Receiving}) {
    // In whatever order they come.
    const TransferBlame blame = FindBlame({report(3, Link::kFrom), report(0, Link::kForward),
                                           report(2, Link::kFrom), report(1, Link::kForward)},
                                          true, 4);
    EXPECT_THAT(blame.unreached, IsEmpty());
    EXPECT_THAT(blame.broken_link, Optional(2));
  }
}

TEST(TransferBlame, TheTrainersLinkIsTheFirstReplicas) {
  EXPECT_THAT(FindBlame({Joining(1, Link::kFrom), Joining(0, Link::kFrom)}, true, 2).broken_link,
              Optional(0));
  EXPECT_THAT(FindBlame({Receiving(0, Link::kFrom)}, true, 1).broken_link, Optional(0));
}

TEST(TransferBlame, WhatTheLeadersAbortBringsAboutAccusesNobody) {
  // The third one is cut off, and says so; the leader ends the transfer, which those before see.
  const std::vector<TransferReport> reports = {
      Receiving(2, Link::kFrom), Late(Receiving(0, Link::kFrom)), Late(Receiving(1, Link::kFrom))};
  EXPECT_THAT(FindBlame(reports, true, 3).broken_link, Optional(2));
  // One that still looks for its neighbours was not ended by it, unless its neighbour is the
  // leader.
  EXPECT_THAT(
      FindBlame({Joining(2, Link::kFrom), Late(Joining(1, Link::kFrom))}, true, 3).broken_link,
      Optional(1));
  EXPECT_THAT(
      FindBlame({Joining(2, Link::kFrom), Late(Joining(0, Link::kFrom))}, true, 3).broken_link,
      Optional(2));
}

TEST(TransferBlame, WhoWaitedUntilTheDeadlineWasEndedByNobody) {
  TransferReport first = Late(Joining(0, Link::kFrom));
  first.timed_out = true;
  EXPECT_THAT(FindBlame({Joining(1, Link::kFrom), first}, true, 2).broken_link, Optional(0));
}

TEST(TransferBlame, OneThatFeedsAndHeardNothingOfTheNextAccusesIt) {
  EXPECT_THAT(FindBlame({Receiving(0, Link::kForward)}, true, 3).broken_link, Optional(1));
  // The last of a chain feeds nobody: what it says then is of no use.
  EXPECT_EQ(FindBlame({Receiving(2, Link::kForward)}, true, 3).broken_link, std::nullopt);
}

TEST(TransferBlame, OneThatCannotTakeWhatComesAccusesItself) {
  EXPECT_THAT(FindBlame({Late(Receiving(1, Link::kOwn))}, true, 3).broken_link, Optional(1));
}

TEST(TransferBlame, InOneGroupOfAllNoLinkCanBeTold) {
  EXPECT_EQ(FindBlame({Joining(0, Link::kFrom), Joining(1, Link::kFrom)}, false, 2).broken_link,
            std::nullopt);
  EXPECT_EQ(FindBlame({}, true, 2).broken_link, std::nullopt);
}

TEST(TransferBlame, ReadsWhatARolloutAnswers) {
  const absl::Status status =
      rpc::WithReason(absl::AbortedError("x"), "TRANSFER_FAILED",
                      {{"phase", "transfer"}, {"link", "forward"}, {"joined", "true"}});
  const auto report = ParseTransferReport(status);
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->link, Link::kForward);
  EXPECT_TRUE(report->joined);
  EXPECT_FALSE(ParseTransferReport(absl::AbortedError("x")).has_value());
  // Of a rollout that says nothing of links.
  const auto bare =
      ParseTransferReport(rpc::WithReason(absl::AbortedError("x"), "TRANSFER_FAILED"));
  ASSERT_TRUE(bare.has_value());
  EXPECT_THAT(bare->link, Eq(Link::kUnknown));
}

}  // namespace
}  // namespace tandem::trainer
