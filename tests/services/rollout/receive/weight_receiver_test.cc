// The receiver against a trainer's leader that the test plays by hand.
#include "services/rollout/receive/weight_receiver.h"

#include <cstring>
#include <functional>
#include <limits>
#include <numeric>

#include "common/comm/choose_group.h"
#include "common/comm/process_group.h"
#include "common/model/kernels/instruction_sets.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "tests/fakes/fake_weight_store.h"
#include "tests/fakes/test_model.h"
#include "tests/support/status_matchers.h"

namespace tandem::rollout {
namespace {

using ::tandem::testing::FakeWeightStore;
using ::tandem::testing::IsOk;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TestModel;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A call whose answer can be waited for.
template <typename Response>
class Call {
 public:
  WeightReceiver::Done<Response> done() {
    auto shared = shared_;
    return [shared](absl::StatusOr<Response> answer) {
      shared->answer = std::move(answer);
      shared->answered.Notify();
    };
  }
  absl::StatusOr<Response> Wait() {
    if (!shared_->answered.WaitForNotificationWithTimeout(absl::Seconds(30))) {
      return absl::DeadlineExceededError("the receiver does not answer");
    }
    return shared_->answer;
  }
  bool answered() const { return shared_->answered.HasBeenNotified(); }

 private:
  struct Shared {
    absl::Notification answered;
    absl::StatusOr<Response> answer;
  };
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

std::string Reason(const absl::Status& status) {
  const auto info = rpc::GetDetail<common::v1::ErrorInfo>(status);
  return info.has_value() ? info->reason() : "";
}

// "from", or "from, joined".
std::string LinkOf(const absl::Status& status) {
  const auto info = rpc::GetDetail<common::v1::ErrorInfo>(status);
  if (!info.has_value() || info->reason() != "TRANSFER_FAILED") return "";
  const bool joined = info->metadata().at("joined") == "true";
  return info->metadata().at("link") + (joined ? ", joined" : "");
}

class WeightReceiverTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(plan_, weights::MakeTransferPlan(model_.manifest(), 200));
    ASSERT_OK_AND_ASSIGN(server_, comm::StoreServer::Start());
    ASSERT_OK_AND_ASSIGN(client_, comm::StoreClient::Connect(Where("g0"), absl::Seconds(30)));
  }

  comm::Rendezvous Where(const std::string& prefix) const {
    return {"127.0.0.1", server_->port(), prefix};
  }

  v1::BeginUpdateRequest BeginRequest(const std::string& id, int64_t version,
                                      absl::Duration timeout = absl::Seconds(30)) {
    v1::BeginUpdateRequest request;
    request.set_request_id("q");
    request.set_incarnation(1);
    request.set_update_id(id);
    request.set_policy_version(version);
    *request.mutable_manifest() = plan_.manifest;
    request.set_manifest_digest(plan_.manifest.digest());
    request.mutable_buckets()->Assign(plan_.buckets.begin(), plan_.buckets.end());
    request.mutable_rendezvous()->set_backend("gloo");
    request.mutable_rendezvous()->set_host("127.0.0.1");
    request.mutable_rendezvous()->set_port(server_->port());
    request.mutable_rendezvous()->set_prefix("g0");
    request.mutable_rendezvous()->set_rank(1);
    request.mutable_rendezvous()->set_size(2);
    request.mutable_timeout()->set_nanos(
        static_cast<int32_t>(absl::ToInt64Nanoseconds(timeout) % 1000000000));
    request.mutable_timeout()->set_seconds(absl::ToInt64Seconds(timeout));
    request.set_transport(common::v1::TRANSPORT_BROADCAST);
    return request;
  }

  absl::StatusOr<v1::BeginUpdateResponse> Begin(const v1::BeginUpdateRequest& request) {
    Call<v1::BeginUpdateResponse> call;
    receiver_.BeginUpdate(request, call.done());
    return call.Wait();
  }

  template <typename Request>
  Request Named(const std::string& id, int64_t incarnation = 1) {
    Request request;
    request.set_request_id("q");
    request.set_incarnation(incarnation);
    request.set_update_id(id);
    return request;
  }

  absl::StatusOr<v1::VerifyUpdateResponse> Verify(const std::string& id) {
    Call<v1::VerifyUpdateResponse> call;
    receiver_.VerifyUpdate(Named<v1::VerifyUpdateRequest>(id), call.done());
    return call.Wait();
  }

  absl::StatusOr<v1::CommitUpdateResponse> Commit(const std::string& id, int64_t version,
                                                  const std::string& digest) {
    auto request = Named<v1::CommitUpdateRequest>(id);
    request.set_policy_version(version);
    request.set_model_digest(digest);
    Call<v1::CommitUpdateResponse> call;
    receiver_.CommitUpdate(request, call.done());
    return call.Wait();
  }

  absl::Status Abort(const std::string& id, int64_t incarnation = 1) {
    auto request = Named<v1::AbortUpdateRequest>(id);
    request.set_incarnation(incarnation);
    request.set_reason("the test says so");
    return receiver_.AbortUpdate(request);
  }

  // The leader's data plane: go, join, and `count` buckets.
  absl::Status Send(const std::string& id, int count) {
    RETURN_IF_ERROR(client_->Set("go/" + id, "go"));
    if (group_ == nullptr) {
      comm::GroupOptions options;
      options.name = "update";
      options.size = 2;
      options.rendezvous = Where("g0");
      options.timeout = absl::Seconds(30);
      ASSIGN_OR_RETURN(group_, comm::CreateGroupOf("gloo", options));
    }
    for (int b = 0; b < count; ++b) {
      at::Tensor buffer = at::zeros({plan_.buckets[b].size_bytes()}, at::kByte);
      for (const auto& piece : plan_.buckets[b].pieces()) {
        std::memcpy(static_cast<char*>(buffer.data_ptr()) + piece.bucket_offset(),
                    model_.Bytes(piece.tensor()).data() + piece.tensor_offset(),
                    piece.size_bytes());
      }
      ASSIGN_OR_RETURN(auto work, group_->Broadcast(buffer, 0, "bucket"));
      RETURN_IF_ERROR(work->Wait());
    }
    return absl::OkStatus();
  }
  int all() const { return static_cast<int>(plan_.buckets.size()); }

  void ExpectLive(int64_t version) {
    EXPECT_EQ(store_.live_version(), version);
    for (int i = 0; i < plan_.manifest.tensors_size(); ++i)
      EXPECT_EQ(store_.LiveBytes(i), model_.Bytes(i)) << i;
  }

  const TestModel model_ = TestModel::Small();
  weights::TransferPlan plan_;
  FakeWeightStore store_{model_.manifest()};
  std::unique_ptr<comm::StoreServer> server_;
  std::unique_ptr<comm::StoreClient> client_;
  std::unique_ptr<comm::ProcessGroup> group_;
  WeightReceiver receiver_{&store_};
};

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
  EXPECT_THAT(Begin(request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("keeps_frozen")));
  request.set_transport(common::v1::TRANSPORT_RESHARD);
  EXPECT_THAT(Begin(request),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("base_version")));
  request = BeginRequest("a", 1);
  request.mutable_buckets()->RemoveLast();
  EXPECT_THAT(Begin(request), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("u2.t1")));
  EXPECT_EQ(receiver_.updating_to(), -1);
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
