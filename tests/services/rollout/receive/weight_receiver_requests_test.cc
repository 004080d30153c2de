// Which updates a receiver accepts: whose, of which version, with which fields.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "common/model/kernels/instruction_sets.h"
#include "tests/services/rollout/receive/weight_receiver_fixture.h"
#include "tests/support/status_matchers.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(WeightReceiverTest, AnotherUpdateOfTheSameIncarnationHasToWait) {
  ASSERT_OK(Begin(BeginRequest("a", 1)).status());
  const absl::Status status = Begin(BeginRequest("b", 2)).status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("update a is open")));
  EXPECT_EQ(Reason(status), "UPDATE_IN_PROGRESS");
  EXPECT_THAT(Begin(BeginRequest("a", 3)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("other contents")));
}

TEST_F(WeightReceiverTest, ANewerIncarnationDropsTheUpdateOfTheOlderWhichIsThenRefused) {
  ASSERT_OK(Begin(BeginRequest("a", 1)).status());
  auto newer = BeginRequest("b", 1);
  newer.set_incarnation(2);
  ASSERT_OK_AND_ASSIGN(const auto ready, Begin(newer));
  EXPECT_TRUE(ready.ready());
  const absl::Status status = Verify("a").status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("incarnation 1 is over")));
  EXPECT_EQ(Reason(status), "STALE_INCARNATION");
  EXPECT_EQ(Reason(Abort("b")), "STALE_INCARNATION");
  EXPECT_EQ(receiver_.updating_to(), 1);
}

TEST_F(WeightReceiverTest, OnlyABeginUpdateMakesANewerIncarnationTheNewest) {
  ASSERT_OK(Begin(BeginRequest("a", 1)).status());
  Call<v1::VerifyUpdateResponse> foreign;
  receiver_.VerifyUpdate(Named<v1::VerifyUpdateRequest>("x", /*incarnation=*/9), foreign.done());
  EXPECT_THAT(foreign.Wait(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("x is not open")));
  EXPECT_EQ(receiver_.updating_to(), 1);
  ASSERT_OK(Send("a", all()));
  ASSERT_OK_AND_ASSIGN(const auto verified, Verify("a"));
  EXPECT_OK(Commit("a", 1, verified.model_digest()).status());
  EXPECT_EQ(receiver_.GetManifest().incarnation(), 1);
}

TEST_F(WeightReceiverTest, AVersionOutOfRangeIsRefused) {
  for (const int64_t version : {std::numeric_limits<int64_t>::max(), int64_t{1} << 53, int64_t{-1},
                                std::numeric_limits<int64_t>::min()}) {
    EXPECT_THAT(Begin(BeginRequest("a", version)),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("policy_version: expected 0 to 9007199254740991")));
  }
  auto request = BeginRequest("a", 1);
  request.set_incarnation(std::numeric_limits<int64_t>::max());
  EXPECT_THAT(Begin(request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("incarnation")));
  EXPECT_OK(Begin(BeginRequest("a", 1)).status());
}

TEST_F(WeightReceiverTest, OnlyATrainerThatTakesOverMayBeginWithASmallerVersion) {
  ASSERT_OK(Begin(BeginRequest("a", 5)).status());
  ASSERT_OK(Send("a", all()));
  ASSERT_OK_AND_ASSIGN(const auto verified, Verify("a"));
  ASSERT_OK(Commit("a", 5, verified.model_digest()).status());
  auto request = BeginRequest("b", 0);
  request.set_incarnation(2);
  EXPECT_EQ(Reason(Begin(request).status()), "VERSION_NOT_NEWER");
  request.mutable_owner()->set_take_over(true);
  EXPECT_OK(Begin(request).status());
}

TEST_F(WeightReceiverTest, AnotherRunCountsItsVersionsAlsoAfterAnAttemptThatFailed) {
  auto first = BeginRequest("a", 5);
  first.mutable_owner()->set_run_id("first");
  ASSERT_OK(Begin(first).status());
  ASSERT_OK(Send("a", all()));
  ASSERT_OK_AND_ASSIGN(const auto verified, Verify("a"));
  ASSERT_OK(Commit("a", 5, verified.model_digest()).status());
  auto second = BeginRequest("b", 0);
  second.set_incarnation(2);
  second.mutable_owner()->set_run_id("second");
  ASSERT_OK(Begin(second).status());
  ASSERT_OK(Abort("b", 2));

  second.set_update_id("c");
  EXPECT_OK(Begin(second).status());
  // The first run's own versions still count on.
  ASSERT_OK(Abort("c", 2));
  first.set_update_id("d");
  first.set_incarnation(3);
  first.set_policy_version(4);
  EXPECT_EQ(Reason(Begin(first).status()), "VERSION_NOT_NEWER");
}

TEST_F(WeightReceiverTest, AVersionThatIsNotNewerIsRefused) {
  ASSERT_OK(Begin(BeginRequest("a", 5)).status());
  ASSERT_OK(Send("a", all()));
  ASSERT_OK_AND_ASSIGN(const auto verified, Verify("a"));
  ASSERT_OK(Commit("a", 5, verified.model_digest()).status());
  const absl::Status status = Begin(BeginRequest("b", 5)).status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("more than 5")));
  EXPECT_EQ(Reason(status), "VERSION_NOT_NEWER");
}

TEST_F(WeightReceiverTest, ATrainerThatComputesWithOtherInstructionsIsRefusedWhereBitsCount) {
  auto request = BeginRequest("a", 1);
  request.set_instruction_sets("ABACUS");
  const absl::Status status = Begin(request).status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("ABACUS"), HasSubstr(model::kernels::InstructionSets()))));
  EXPECT_EQ(Reason(status), "INSTRUCTION_SETS_DIFFER");
  EXPECT_EQ(receiver_.updating_to(), -1);
  request.set_instruction_sets(model::kernels::InstructionSets());
  EXPECT_OK(Begin(request).status());
}

TEST_F(WeightReceiverTest, RequestsThatMakeNoSenseNameTheField) {
  auto request = BeginRequest("a", 1);
  request.mutable_rendezvous()->set_rank(0);
  EXPECT_THAT(Begin(request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("rendezvous.rank")));
  request = BeginRequest("a", 1);
  request.clear_timeout();
  EXPECT_THAT(Begin(request), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("timeout")));
  request = BeginRequest("a", 1);
  request.clear_transport();
  EXPECT_THAT(Begin(request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found 'unspecified'")));
  request = BeginRequest("a", 1);
  request.set_transport(static_cast<common::v1::Transport>(77));  // of a newer trainer
  EXPECT_THAT(Begin(request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found '77'")));
  request = BeginRequest("a", 1);
  request.set_base_version(0);
  EXPECT_THAT(Begin(request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("base_version")));
  request = BeginRequest("a", 1);
  request.set_keeps_frozen(true);
  for (const auto transport : {common::v1::TRANSPORT_BROADCAST, common::v1::TRANSPORT_RESHARD,
                               common::v1::TRANSPORT_STREAM}) {
    request.set_transport(transport);
    EXPECT_THAT(Begin(request), StatusIs(absl::StatusCode::kInvalidArgument,
                                         HasSubstr("keeps_frozen need a base")));
  }
  request = BeginRequest("a", 1);
  request.mutable_buckets()->RemoveLast();
  EXPECT_THAT(Begin(request), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("u2.t1")));
  EXPECT_EQ(receiver_.updating_to(), -1);
}

TEST_F(WeightReceiverTest, WhoPassesOnPartsOfABroadcastIsChecked) {
  const auto error = [&](const std::function<void(v1::BeginUpdateRequest&)>& change) {
    auto request = BeginRequest("a", 1);
    request.mutable_rendezvous()->set_size(4);
    request.mutable_rendezvous()->set_rank(2);
    change(request);
    return Begin(request).status();
  };
  const auto refused = [](const char* what) {
    return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what));
  };
  for (const int rank : {0, 2, 4, -1}) {
    EXPECT_THAT(error([&](auto& request) { request.set_fed_by(rank); }), refused("fed_by"));
  }
  for (const int rank : {2, 4, -1}) {
    EXPECT_THAT(error([&](auto& request) { request.set_forward_to(rank); }), refused("forward_to"));
  }
  EXPECT_THAT(error([](auto& request) { request.mutable_buckets(0)->set_source(1); }),
              refused("bucket 0: source: expected 0"));
  EXPECT_EQ(receiver_.updating_to(), -1);
  EXPECT_OK(error([](auto& request) {
    request.set_fed_by(1);
    request.set_forward_to(3);
  }));
}

TEST_F(WeightReceiverTest, WhatIsPassedOnToAReplicaThatIsSplitOtherwiseIsChecked) {
  const auto relaying = [&] {
    auto request = BeginRequest("a", 1);
    request.set_transport(common::v1::TRANSPORT_RESHARD);
    *request.mutable_forward() = request.rendezvous();
    request.mutable_forward()->set_prefix("g1");
    request.set_relays(true);
    common::v1::RelayedBucket& relayed = *request.add_relayed();
    *relayed.add_pieces() = request.buckets(0).pieces(0);
    relayed.add_message_pieces(1);
    return request;
  };
  const auto expect = [&](const std::string& what,
                          const std::function<void(v1::BeginUpdateRequest&)>& change) {
    auto request = relaying();
    change(request);
    EXPECT_THAT(Begin(request), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what)));
    EXPECT_EQ(receiver_.updating_to(), -1);
  };
  expect("relays", [](auto& request) { request.set_transport(common::v1::TRANSPORT_BROADCAST); });
  expect("forward", [](auto& request) {
    request.set_transport(common::v1::TRANSPORT_BROADCAST);
    request.set_relays(false);
  });
  expect("relays", [](auto& request) { request.set_forward_to(1); });
  expect("relays", [](auto& request) { request.clear_forward(); });
  expect("forward.prefix", [](auto& request) { request.mutable_forward()->set_prefix("g0"); });
  expect("relayed 0", [](auto& r) { r.mutable_relayed(0)->set_after_bucket(r.buckets_size()); });
  expect("relayed 0", [](auto& r) { r.mutable_relayed(0)->mutable_pieces(0)->set_tensor(6); });
  ASSERT_OK(Begin(relaying()).status());
}

}  // namespace
}  // namespace tandem::rollout
