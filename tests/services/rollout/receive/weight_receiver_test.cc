// The course of an update at the receiver, and how it ends.
#include "services/rollout/receive/weight_receiver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/services/rollout/receive/weight_receiver_fixture.h"
#include "tests/support/status_matchers.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_F(WeightReceiverTest, StatesItsManifestAndThatNothingIsLive) {
  const auto response = receiver_.GetManifest();
  EXPECT_EQ(response.manifest().digest(), plan_.manifest.digest());
  EXPECT_EQ(response.policy_version(), -1);
  Call<v1::GetDigestsResponse> digests;
  receiver_.GetDigests(digests.done());
  EXPECT_THAT(digests.Wait(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("nothing is committed")));
}

TEST_F(WeightReceiverTest, CommitsWhatItReceivedAndAnswersRepeatsAlike) {
  ASSERT_OK_AND_ASSIGN(const auto ready, Begin(BeginRequest("a", 7)));
  EXPECT_TRUE(ready.ready());
  ASSERT_OK_AND_ASSIGN(const auto again, Begin(BeginRequest("a", 7)));
  EXPECT_TRUE(again.ready());
  EXPECT_EQ(receiver_.updating_to(), 7);
  ASSERT_OK(Send("a", all()));
  ASSERT_OK_AND_ASSIGN(const auto verified, Verify("a"));
  ASSERT_OK_AND_ASSIGN(const auto verified_again, Verify("a"));
  EXPECT_EQ(verified.SerializeAsString(), verified_again.SerializeAsString());
  EXPECT_EQ(verified.digests_size(), 6);
  EXPECT_EQ(store_.live_version(), -1);
  ASSERT_OK_AND_ASSIGN(const auto committed, Commit("a", 7, verified.model_digest()));
  EXPECT_EQ(committed.policy_version(), 7);
  EXPECT_EQ(committed.pause_seconds(), 0.25);
  ASSERT_OK_AND_ASSIGN(const auto committed_again, Commit("a", 7, verified.model_digest()));
  EXPECT_EQ(committed.SerializeAsString(), committed_again.SerializeAsString());
  EXPECT_EQ(store_.num_commits, 1);
  ExpectLive(7);
  EXPECT_EQ(receiver_.updating_to(), -1);
  ASSERT_OK_AND_ASSIGN(const auto late_begin, Begin(BeginRequest("a", 7)));
  EXPECT_TRUE(late_begin.ready());
  EXPECT_EQ(receiver_.updating_to(), -1);
  EXPECT_THAT(Abort("a"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("is committed")));
  Call<v1::GetDigestsResponse> digests;
  receiver_.GetDigests(digests.done());
  ASSERT_OK_AND_ASSIGN(const auto live, digests.Wait());
  EXPECT_EQ(live.model_digest(), verified.model_digest());
  EXPECT_EQ(live.policy_version(), 7);
}

TEST_F(WeightReceiverTest, TheStoreHearsOfEveryTensorThatIsComplete) {
  ASSERT_OK(Begin(BeginRequest("a", 7)).status());
  ASSERT_OK(Send("a", all()));
  ASSERT_OK(Verify("a").status());
  std::vector<int> tensors(plan_.manifest.tensors_size());
  std::iota(tensors.begin(), tensors.end(), 0);
  EXPECT_EQ(store_.finished, tensors);
}

TEST_F(WeightReceiverTest, AStoreThatCannotFinishATensorEndsTheUpdateAndKeepsTheOldVersion) {
  store_.arrive_error = absl::ResourceExhaustedError("no memory for the packed copy");
  ASSERT_OK(Begin(BeginRequest("a", 7)).status());
  Send("a", all()).IgnoreError();
  EXPECT_THAT(Verify("a").status(), StatusIs(absl::StatusCode::kAborted, HasSubstr("no memory")));
  EXPECT_EQ(store_.live_version(), -1);
}

TEST_F(WeightReceiverTest, TheSecondUpdateNeedsNoManifestAndUsesTheGroupAgain) {
  for (int version = 1; version < 4; ++version) {
    const std::string id = std::to_string(version);
    auto request = BeginRequest(id, version);
    if (version > 1) {
      request.clear_manifest();
      request.clear_buckets();
    }
    ASSERT_OK_AND_ASSIGN(const auto ready, Begin(request));
    ASSERT_TRUE(ready.ready());
    ASSERT_OK(Send(id, all()));
    ASSERT_OK_AND_ASSIGN(const auto verified, Verify(id));
    ASSERT_OK(Commit(id, version, verified.model_digest()).status());
    ExpectLive(version);
  }
}

TEST_F(WeightReceiverTest, WithoutAManifestThatItKnowsNothingIsBegun) {
  auto request = BeginRequest("a", 1);
  request.clear_manifest();
  request.clear_buckets();
  ASSERT_OK_AND_ASSIGN(const auto answer, Begin(request));
  EXPECT_FALSE(answer.ready());
  EXPECT_EQ(receiver_.updating_to(), -1);
}

TEST_F(WeightReceiverTest, AVerifyThatComesBeforeTheBytesWaitsForThem) {
  ASSERT_OK(Begin(BeginRequest("a", 1)).status());
  Call<v1::VerifyUpdateResponse> call;
  receiver_.VerifyUpdate(Named<v1::VerifyUpdateRequest>("a"), call.done());
  EXPECT_FALSE(call.answered());
  ASSERT_OK(Send("a", all()));
  EXPECT_OK(call.Wait().status());
}

TEST_F(WeightReceiverTest, ACommitBeforeVerifyOrOfAnotherDigestIsRefused) {
  ASSERT_OK(Begin(BeginRequest("a", 1)).status());
  EXPECT_THAT(Commit("a", 1, "x"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("not verified")));
  ASSERT_OK(Send("a", all()));
  ASSERT_OK_AND_ASSIGN(const auto verified, Verify("a"));
  EXPECT_THAT(Commit("a", 1, "x"),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("model_digest")));
  EXPECT_THAT(Commit("a", 2, verified.model_digest()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("policy_version")));
  EXPECT_EQ(store_.live_version(), -1);
  EXPECT_OK(Commit("a", 1, verified.model_digest()).status());
}

TEST_F(WeightReceiverTest, CallsOfUpdatesThatAreNotOpenAreNotFound) {
  EXPECT_THAT(Verify("x"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("never begun")));
  EXPECT_THAT(Commit("x", 1, ""), StatusIs(absl::StatusCode::kNotFound, HasSubstr("never begun")));
  EXPECT_OK(Abort("x"));
}

TEST_F(WeightReceiverTest, ABeginThatArrivesAfterItsAbortIsRefused) {
  EXPECT_OK(Abort("a"));
  EXPECT_THAT(Begin(BeginRequest("a", 1)),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("the test says so")));
  ASSERT_OK_AND_ASSIGN(const auto ready, Begin(BeginRequest("b", 1)));
  EXPECT_TRUE(ready.ready());
}

TEST_F(WeightReceiverTest, AnAbortWhileItWaitsForGoLeavesNoTrace) {
  ASSERT_OK(Begin(BeginRequest("a", 1)).status());
  Call<v1::VerifyUpdateResponse> verify;
  receiver_.VerifyUpdate(Named<v1::VerifyUpdateRequest>("a"), verify.done());
  EXPECT_OK(Abort("a"));
  EXPECT_OK(Abort("a"));
  EXPECT_THAT(verify.Wait(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("aborted")));
  ASSERT_OK(Begin(BeginRequest("b", 1)).status());
  ASSERT_OK(Send("b", all()));
  ASSERT_OK_AND_ASSIGN(const auto verified, Verify("b"));
  ASSERT_OK(Commit("b", 1, verified.model_digest()).status());
  ExpectLive(1);
}

TEST_F(WeightReceiverTest, AnAbortInTheMiddleOfTheTransferKeepsTheOldVersion) {
  ASSERT_OK(Begin(BeginRequest("a", 1)).status());
  ASSERT_OK(Send("a", all()));
  ASSERT_OK_AND_ASSIGN(const auto verified, Verify("a"));
  ASSERT_OK(Commit("a", 1, verified.model_digest()).status());

  ASSERT_OK(Begin(BeginRequest("b", 2)).status());
  ASSERT_OK(Send("b", 2));
  EXPECT_OK(Abort("b"));
  EXPECT_THAT(Verify("b"), StatusIs(absl::StatusCode::kNotFound, HasSubstr("aborted")));
  ExpectLive(1);
  // The leader hears of it by the closed connection.
  at::Tensor buffer = at::zeros({1 << 22}, at::kByte);
  auto work = group_->Receive(buffer, 1, "anything");
  if (work.ok()) {
    EXPECT_THAT((*work)->Wait(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("peer")));
  }
}

TEST_F(WeightReceiverTest, ALeaderThatGoesDownInTheMiddleEndsTheUpdate) {
  ASSERT_OK(Begin(BeginRequest("a", 1)).status());
  ASSERT_OK(Send("a", 2));
  group_->Abort("the leader dies");
  group_.reset();
  EXPECT_THAT(Verify("a"), StatusIs(absl::StatusCode::kAborted, AllOf(HasSubstr("phase transfer"),
                                                                      HasSubstr("bucket 2 of 6"))));
  EXPECT_EQ(store_.live_version(), -1);
}

TEST_F(WeightReceiverTest, ALeaderThatFallsSilentIsGivenUpAtTheDeadline) {
  ASSERT_OK(Begin(BeginRequest("a", 1, absl::Milliseconds(400))).status());
  ASSERT_OK(Send("a", 2));
  const absl::Status status = Verify("a").status();
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("phase transfer")));
  EXPECT_EQ(Reason(status), "TRANSFER_FAILED");
  EXPECT_EQ(store_.live_version(), -1);
}

TEST_F(WeightReceiverTest, ALeaderThatNeverSaysGoIsGivenUpAtTheDeadline) {
  ASSERT_OK(Begin(BeginRequest("a", 1, absl::Milliseconds(200))).status());
  EXPECT_THAT(Verify("a"), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("go/a")));
}

TEST_F(WeightReceiverTest, SaysWhichLinkFailedAndWaitsForItNoLongerThanItIsTold) {
  const auto failed = [&](const std::string& id, const auto& change) {
    v1::BeginUpdateRequest request = BeginRequest(id, 1, absl::Minutes(10));
    request.set_transport(common::v1::TRANSPORT_RESHARD);
    request.mutable_join_timeout()->set_nanos(100'000'000);
    change(request);
    EXPECT_OK(Begin(request).status());
    EXPECT_OK(client_->Set("go/" + id, "go"));
    const absl::Status status = Verify(id).status();
    return LinkOf(status);
  };
  EXPECT_EQ(failed("a", [](auto& request) { request.mutable_rendezvous()->set_port(1); }),
            "rendezvous");
  EXPECT_EQ(failed("b", [](auto&) {}), "from");
  EXPECT_EQ(store_.live_version(), -1);
}

TEST_F(WeightReceiverTest, ALeaderThatFallsSilentLeavesALinkThatWasJoined) {
  ASSERT_OK(Begin(BeginRequest("a", 1, absl::Milliseconds(400))).status());
  ASSERT_OK(Send("a", 2));
  EXPECT_EQ(LinkOf(Verify("a").status()), "from, joined");
}

TEST_F(WeightReceiverTest, AVerifiedUpdateThatIsNotCommittedIsDroppedAtTheDeadline) {
  ASSERT_OK(Begin(BeginRequest("a", 1, absl::Milliseconds(500))).status());
  ASSERT_OK(Send("a", all()));
  ASSERT_OK_AND_ASSIGN(const auto verified, Verify("a"));
  // Begun only after the first is gone: the answer tells when.
  absl::Status status;
  do {
    status = Begin(BeginRequest("b", 1)).status();
  } while (Reason(status) == "UPDATE_IN_PROGRESS");
  EXPECT_OK(status);
  EXPECT_THAT(
      Commit("a", 1, verified.model_digest()),
      StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("not committed by its deadline")));
  EXPECT_EQ(store_.live_version(), -1);
}

TEST_F(WeightReceiverTest, AnArenaThatDoesNotFitIsAnsweredAtOnceAndTheNextUpdateMayBegin) {
  store_.prepare_error = absl::ResourceExhaustedError("no room for a second arena");
  EXPECT_THAT(Begin(BeginRequest("a", 1)),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no room")));
  EXPECT_THAT(Verify("a"), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("no room")));
}

TEST_F(WeightReceiverTest, ACommitThatFailsCanBeRepeated) {
  ASSERT_OK(Begin(BeginRequest("a", 1)).status());
  ASSERT_OK(Send("a", all()));
  ASSERT_OK_AND_ASSIGN(const auto verified, Verify("a"));
  store_.commit_error = absl::UnavailableError("busy");
  EXPECT_THAT(Commit("a", 1, verified.model_digest()),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("busy")));
  EXPECT_OK(Commit("a", 1, verified.model_digest()).status());
  ExpectLive(1);
}

TEST_F(WeightReceiverTest, AfterShutdownEveryCallIsAnswered) {
  ASSERT_OK(Begin(BeginRequest("a", 1)).status());
  Call<v1::VerifyUpdateResponse> verify;
  receiver_.VerifyUpdate(Named<v1::VerifyUpdateRequest>("a"), verify.done());
  receiver_.Shutdown();
  EXPECT_THAT(verify.Wait(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("shutting down")));
  EXPECT_THAT(Begin(BeginRequest("b", 1)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("shutting down")));
  Call<v1::GetDigestsResponse> digests;
  receiver_.GetDigests(digests.done());
  EXPECT_THAT(digests.Wait(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("shutting down")));
}

}  // namespace
}  // namespace tandem::rollout
