// WeightReceiverTest: a receiver and a trainer's leader, whom the test plays by hand.
#ifndef TANDEM_TESTS_SERVICES_ROLLOUT_RECEIVE_WEIGHT_RECEIVER_FIXTURE_H_
#define TANDEM_TESTS_SERVICES_ROLLOUT_RECEIVE_WEIGHT_RECEIVER_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "common/comm/choose_group.h"
#include "common/comm/process_group.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "services/rollout/receive/weight_receiver.h"
#include "tests/fakes/fake_weight_store.h"
#include "tests/fakes/test_model.h"
#include "tests/support/status_matchers.h"

namespace tandem::rollout {

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

inline std::string Reason(const absl::Status& status) {
  const auto info = rpc::GetDetail<common::v1::ErrorInfo>(status);
  return info.has_value() ? info->reason() : "";
}

// "from", or "from, joined".
inline std::string LinkOf(const absl::Status& status) {
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

  const testing::TestModel model_ = testing::TestModel::Small();
  weights::TransferPlan plan_;
  testing::FakeWeightStore store_{model_.manifest()};
  std::unique_ptr<comm::StoreServer> server_;
  std::unique_ptr<comm::StoreClient> client_;
  std::unique_ptr<comm::ProcessGroup> group_;
  WeightReceiver receiver_{&store_};
};

}  // namespace tandem::rollout

#endif  // TANDEM_TESTS_SERVICES_ROLLOUT_RECEIVE_WEIGHT_RECEIVER_FIXTURE_H_
