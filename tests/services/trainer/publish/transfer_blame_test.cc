#include "services/trainer/publish/transfer_blame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/rpc/status_conversion.h"
#include "services/trainer/publish/route.h"

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
  const std::vector<TransferReport> unreached =
      Unreached({Joining(0, Link::kForward), Joining(1, Link::kRendezvous)});
  ASSERT_EQ(unreached.size(), 1u);
  EXPECT_EQ(unreached[0].replica, 1);
}

TEST(TransferBlame, TheLinkIsWhereThoseThatFeedMeetThoseThatAreFed) {
  for (const auto& report : {&Joining, &Receiving}) {
    // In whatever order they come.
    const std::vector<TransferReport> reports = {report(3, Link::kFrom), report(0, Link::kForward),
                                                 report(2, Link::kFrom), report(1, Link::kForward)};
    EXPECT_THAT(Unreached(reports), IsEmpty());
    EXPECT_THAT(BrokenLinkOfChain(reports, 4), Optional(2));
  }
}

TEST(TransferBlame, TheTrainersLinkIsTheFirstReplicas) {
  EXPECT_THAT(BrokenLinkOfChain({Joining(1, Link::kFrom), Joining(0, Link::kFrom)}, 2),
              Optional(0));
  EXPECT_THAT(BrokenLinkOfChain({Receiving(0, Link::kFrom)}, 1), Optional(0));
}

TEST(TransferBlame, WhatTheLeadersAbortBringsAboutAccusesNobody) {
  // The third one is cut off, and says so; the leader ends the transfer, which those before see.
  const std::vector<TransferReport> reports = {
      Receiving(2, Link::kFrom), Late(Receiving(0, Link::kFrom)), Late(Receiving(1, Link::kFrom))};
  EXPECT_THAT(BrokenLinkOfChain(reports, 3), Optional(2));
  // One that still looks for its neighbours was not ended by it, unless its neighbour is the
  // leader.
  EXPECT_THAT(BrokenLinkOfChain({Joining(2, Link::kFrom), Late(Joining(1, Link::kFrom))}, 3),
              Optional(1));
  EXPECT_THAT(BrokenLinkOfChain({Joining(2, Link::kFrom), Late(Joining(0, Link::kFrom))}, 3),
              Optional(2));
}

TEST(TransferBlame, WhoWaitedUntilTheDeadlineWasEndedByNobody) {
  TransferReport first = Late(Joining(0, Link::kFrom));
  first.timed_out = true;
  EXPECT_THAT(BrokenLinkOfChain({Joining(1, Link::kFrom), first}, 2), Optional(0));
}

TEST(TransferBlame, OneThatFeedsAndHeardNothingOfTheNextAccusesIt) {
  EXPECT_THAT(BrokenLinkOfChain({Receiving(0, Link::kForward)}, 3), Optional(1));
  // The last of a chain feeds nobody: what it says then is of no use.
  EXPECT_EQ(BrokenLinkOfChain({Receiving(2, Link::kForward)}, 3), std::nullopt);
}

TEST(TransferBlame, OneThatCannotTakeWhatComesAccusesItself) {
  EXPECT_THAT(BrokenLinkOfChain({Late(Receiving(1, Link::kOwn))}, 3), Optional(1));
}

TEST(TransferBlame, InOneGroupOfAllNoLinkCanBeTold) {
  EXPECT_EQ(StarRoute().BrokenLink({Joining(0, Link::kFrom), Joining(1, Link::kFrom)}, 2),
            std::nullopt);
  EXPECT_THAT(StarRoute().BrokenLink({Joining(0, Link::kFrom)}, 1), Optional(0));
  EXPECT_EQ(BrokenLinkOfChain({}, 2), std::nullopt);
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
