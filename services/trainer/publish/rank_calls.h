// RankCalls: one RPC to every rank of several replicas, all in flight at once. Requests carry an id
// and their digest; a response whose digest does not match is DATA_LOSS.
//
//   RankCalls<BeginUpdateRequest, BeginUpdateResponse> calls(replicas);
//   calls.Start(&WeightServiceAsync::BeginUpdate, deadline,
//               [&](int replica, int rank) { return request; });
//   calls.WaitUntil(deadline);
//   RETURN_IF_ERROR(calls.answers()[0][0].status);   // by replica and rank
#ifndef TANDEM_SERVICES_TRAINER_PUBLISH_RANK_CALLS_H_
#define TANDEM_SERVICES_TRAINER_PUBLISH_RANK_CALLS_H_

#include <grpcpp/client_context.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/rpc/channel.h"
#include "common/rpc/message_digest.h"
#include "common/rpc/new_uuid.h"
#include "common/rpc/status_conversion.h"
#include "services/trainer/publish/replica_client.h"

namespace tandem::trainer {

using WeightServiceAsync = rollout::v1::WeightService::StubInterface::async_interface;

// Single use. The destructor cancels calls in flight and waits for them.
template <typename Request, typename Response>
class RankCalls {
 public:
  using Method = void (WeightServiceAsync::*)(grpc::ClientContext*, const Request*, Response*,
                                              std::function<void(grpc::Status)>);
  using MakeRequest = std::function<Request(int replica, int rank)>;
  // Called on a gRPC thread when a call fails.
  using OnFailure = std::function<void(int replica, int rank, const absl::Status&)>;

  explicit RankCalls(std::vector<ReplicaClient*> replicas) : replicas_(std::move(replicas)) {}

  ~RankCalls() {
    Cancel();
    absl::MutexLock lock(&mu_);
    mu_.Await(absl::Condition(
        +[](int* n) { return *n == 0; }, &under_way_));
  }

  // `wanted` selects the ranks to call; the answers of others stay OK and empty. Null calls all.
  void Start(Method method, absl::Time deadline, const MakeRequest& make_request,
             OnFailure on_failure = nullptr,
             const std::function<bool(int replica, int rank)>& wanted = nullptr) {
    on_failure_ = std::move(on_failure);
    std::vector<Call*> starting;
    {
      absl::MutexLock lock(&mu_);
      answers_.resize(replicas_.size());
      for (int replica = 0; replica < static_cast<int>(replicas_.size()); ++replica) {
        answers_[replica].resize(replicas_[replica]->num_ranks());
        for (int rank = 0; rank < replicas_[replica]->num_ranks(); ++rank) {
          if (wanted && !wanted(replica, rank)) continue;
          auto call = std::make_unique<Call>();
          call->replica = replica;
          call->rank = rank;
          call->request = make_request(replica, rank);
          call->request.set_request_id(rpc::NewUuid());
          rpc::SetDigest(call->request);
          call->context = rpc::MakeContext(std::max(absl::Milliseconds(1), deadline - absl::Now()));
          starting.push_back(call.get());
          calls_.push_back(std::move(call));
        }
      }
      under_way_ = static_cast<int>(starting.size());
    }
    for (Call* call : starting) {
      (replicas_[call->replica]->stub(call->rank).async()->*method)(
          call->context.get(), &call->request, &call->response, [this, call](grpc::Status status) {
            Done(call, rpc::ExplainGarbled(rpc::FromGrpcStatus(status)));
          });
    }
  }

  // Returns true if all calls have ended by then.
  bool WaitUntil(absl::Time deadline) {
    absl::MutexLock lock(&mu_);
    return mu_.AwaitWithDeadline(absl::Condition(
                                     +[](int* n) { return *n == 0; }, &under_way_),
                                 deadline);
  }

  // Ends calls in flight with CANCELLED.
  void Cancel() {
    {
      absl::MutexLock lock(&mu_);
      cancelled_ = true;
    }
    for (auto& call : calls_) call->context->TryCancel();
  }

  // [replica][rank]; complete once WaitUntil() has returned true.
  const std::vector<std::vector<RankAnswer<Response>>>& answers() const { return answers_; }

 private:
  struct Call {
    int replica = 0;
    int rank = 0;
    Request request;
    Response response;
    std::unique_ptr<grpc::ClientContext> context;
  };

  bool cancelled() {
    absl::MutexLock lock(&mu_);
    return cancelled_;
  }

  void Done(Call* call, absl::Status status) {
    if (status.ok()) {
      status = rpc::CheckDigest(call->response, call->request.message_digest());
      if (!status.ok()) call->response.Clear();
    }
    if (absl::IsCancelled(status) && !cancelled()) {
      // Not cancelled by this side: a server that shuts down cancels its calls.
      status = absl::UnavailableError(
          absl::StrCat("the rollout ended the call, as one that stops does: ", status.message()));
    }
    if (!status.ok() && on_failure_) on_failure_(call->replica, call->rank, status);
    absl::MutexLock lock(&mu_);
    auto& answer = answers_[call->replica][call->rank];
    answer.status = std::move(status);
    answer.response = std::move(call->response);
    --under_way_;
  }

  const std::vector<ReplicaClient*> replicas_;
  std::vector<std::unique_ptr<Call>> calls_;
  OnFailure on_failure_;
  absl::Mutex mu_;
  int under_way_ ABSL_GUARDED_BY(mu_) = 0;
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::vector<RankAnswer<Response>>> answers_;
};

}  // namespace tandem::trainer

#endif  // TANDEM_SERVICES_TRAINER_PUBLISH_RANK_CALLS_H_
