#include "tools/tandem/driver/teacher_client.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/poll_interval.h"

namespace tandem::driver {
namespace {

// Calls at a time: enough to fill the teacher's batches, few enough that none waits long in its queue.
constexpr int kMaxRunning = 64;
constexpr absl::Duration kRetryPause = absl::Milliseconds(500);

// Whether the teacher may take the call later: it is down, loads its weights, or has a full queue.
bool IsTransient(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         absl::IsFailedPrecondition(status) || absl::IsAborted(status) || absl::IsCancelled(status);
}

absl::Status CheckLogProbs(const google::protobuf::RepeatedField<float>& values, int expected,
                           const char* what) {
  if (values.size() != expected) {
    return absl::InternalError(
        absl::StrFormat("expected %d %s, found %d", expected, what, values.size()));
  }
  for (int i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    return absl::InternalError(absl::StrCat(what, "[", i, "]: expected a finite number, found ",
                                            values[i], "; the teacher's weights may be damaged"));
  }
  return absl::OkStatus();
}

absl::Status CheckResponse(const TeacherClient::Request& request,
                           const rollout::v1::ScoreResponse& response) {
  const int positions = std::max(0, static_cast<int>(request.token_ids.size()) - 1);
  const int top = positions * request.num_top_logprobs;
  RETURN_IF_ERROR(CheckLogProbs(response.logprobs(), positions, "logprobs"));
  RETURN_IF_ERROR(CheckLogProbs(response.top_logprobs(), top, "top_logprobs"));
  if (response.top_token_ids_size() == top) return absl::OkStatus();
  return absl::InternalError(
      absl::StrFormat("expected %d top_token_ids, found %d", top, response.top_token_ids_size()));
}

}  // namespace

// The calls of one Score(). Used by its thread; gRPC's threads deliver their ends.
class TeacherClient::Batch {
 public:
  Batch(TeacherClient& client, const std::vector<Request>& requests)
      : client_(client), requests_(requests), calls_(requests.size()) {
    for (size_t i = 0; i < requests.size(); ++i) {
      rollout::v1::ScoreRequest& request = calls_[i].request;
      request.mutable_token_ids()->Add(requests[i].token_ids.begin(), requests[i].token_ids.end());
      request.set_temperature(requests[i].temperature);
      request.set_num_top_logprobs(requests[i].num_top_logprobs);
      waiting_.push_back(i);
    }
  }

  absl::StatusOr<std::vector<rollout::v1::ScoreResponse>> Run() {
    absl::Status status;
    size_t num_left = calls_.size();
    while (status.ok() && num_left > 0) {
      StartCalls();
      for (const auto& [index, ended] : AwaitEnds()) {
        absl::StatusOr<bool> is_done = TakeEnd(index, ended);
        if (is_done.ok() && *is_done) --num_left;
        status.Update(is_done.status());
      }
      if (client_.options_.interrupted && client_.options_.interrupted()) {
        status.Update(absl::CancelledError("interrupted"));
      }
    }
    if (!status.ok()) {
      CancelAll();
      return status;
    }
    std::vector<rollout::v1::ScoreResponse> out;
    for (Call& call : calls_) out.push_back(std::move(call.response));
    return out;
  }

 private:
  struct Call {
    rollout::v1::ScoreRequest request;
    rollout::v1::ScoreResponse response;
    std::unique_ptr<grpc::ClientContext> context;  // null unless it runs
    std::shared_ptr<Stub> stub;
    absl::Time deadline = absl::InfiniteFuture();  // from the first attempt on
  };
  struct End {
    size_t index;
    absl::Status status;
  };

  // Starts waiting calls, as far as there is room.
  void StartCalls() {
    while (!waiting_.empty() && absl::Now() >= resume_ && Reserve()) {
      const size_t index = waiting_.front();
      waiting_.pop_front();
      Call& call = calls_[index];
      call.deadline = std::min(call.deadline, absl::Now() + client_.options_.timeout);
      call.stub = client_.CurrentStub();
      if (call.stub == nullptr) {
        OnEnd(index, absl::UnavailableError("it is down"));
        continue;
      }
      call.response.Clear();
      call.context = rpc::MakeContext(call.deadline - absl::Now());
      call.stub->async()->Score(
          call.context.get(), &call.request, &call.response,
          [this, index](const grpc::Status& status) { OnEnd(index, rpc::FromGrpcStatus(status)); });
    }
  }

  bool Reserve() {
    absl::MutexLock lock(&client_.mu_);
    if (client_.num_running_ >= kMaxRunning) return false;
    ++client_.num_running_;
    ++num_running_;
    return true;
  }

  void OnEnd(size_t index, absl::Status status) {
    absl::MutexLock lock(&client_.mu_);
    --client_.num_running_;
    --num_running_;
    ended_.push_back({index, std::move(status)});
  }

  // Waits for the end of calls, for room to start another, or for the time to look around.
  std::vector<End> AwaitEnds() {
    const absl::Duration pause =
        std::min(kPollInterval, waiting_.empty() || resume_ <= absl::Now() ? kPollInterval
                                                                           : resume_ - absl::Now());
    const bool may_start = !waiting_.empty() && resume_ <= absl::Now();
    absl::MutexLock lock(&client_.mu_);
    const auto has_news = [this, may_start] {
      client_.mu_.AssertHeld();
      return !ended_.empty() || (may_start && client_.num_running_ < kMaxRunning);
    };
    client_.mu_.AwaitWithTimeout(absl::Condition(&has_news), pause);
    return std::exchange(ended_, {});
  }

  // Whether the call is done; it may be repeated otherwise.
  absl::StatusOr<bool> TakeEnd(size_t index, const absl::Status& ended) {
    Call& call = calls_[index];
    call.context.reset();
    if (ended.ok()) {
      RETURN_IF_ERROR(CheckResponse(requests_[index], call.response)) << client_.options_.name;
      return true;
    }
    if (call.stub != nullptr) client_.Forget(std::exchange(call.stub, nullptr));
    const bool is_late =
        absl::IsDeadlineExceeded(ended) || absl::Now() + kRetryPause >= call.deadline;
    if (!IsTransient(ended) && !is_late) return StatusBuilder(ended) << client_.options_.name;
    if (is_late) {
      return absl::DeadlineExceededError(absl::StrFormat(
          "%s did not score a sequence of %d tokens within %s (teacher.timeout_s): %s",
          client_.options_.name, call.request.token_ids_size(),
          absl::FormatDuration(client_.options_.timeout), ended.message()));
    }
    waiting_.push_back(index);
    resume_ = absl::Now() + kRetryPause;
    return false;
  }

  void CancelAll() {
    for (Call& call : calls_) {
      if (call.context != nullptr) call.context->TryCancel();
    }
    // Every call is cancelled and has a deadline, so this wait ends.
    absl::MutexLock lock(&client_.mu_);
    const auto all_ended = [this] {
      client_.mu_.AssertHeld();
      return num_running_ == 0;
    };
    client_.mu_.Await(absl::Condition(&all_ended));
  }

  TeacherClient& client_;
  const std::vector<Request>& requests_;
  std::vector<Call> calls_;
  std::deque<size_t> waiting_;
  absl::Time resume_ = absl::InfinitePast();  // when calls may start again after a failure
  // Guarded by client_.mu_.
  std::vector<End> ended_;
  int num_running_ = 0;
};

std::shared_ptr<TeacherClient::Stub> TeacherClient::CurrentStub() {
  {
    absl::MutexLock lock(&mu_);
    if (stub_ != nullptr) return stub_;
  }
  const std::string address = options_.address();
  if (address.empty()) return nullptr;
  std::shared_ptr<Stub> stub = rollout::v1::RolloutService::NewStub(rpc::MakeChannel(address));
  absl::MutexLock lock(&mu_);
  if (stub_ == nullptr) stub_ = std::move(stub);
  return stub_;
}

void TeacherClient::Forget(const std::shared_ptr<Stub>& stub) {
  absl::MutexLock lock(&mu_);
  if (stub_ == stub) stub_ = nullptr;
}

absl::StatusOr<rollout::v1::GetServerInfoResponse> TeacherClient::GetServerInfo(
    absl::Duration timeout) {
  const std::string address = options_.address();
  const auto stub = rollout::v1::RolloutService::NewStub(rpc::MakeChannel(address));
  const auto context = rpc::MakeContext(timeout, {.wait_for_ready = true});
  rollout::v1::GetServerInfoResponse response;
  RETURN_IF_ERROR(rpc::FromGrpcStatus(stub->GetServerInfo(context.get(), {}, &response)))
      << options_.name;
  return response;
}

absl::StatusOr<std::vector<rollout::v1::ScoreResponse>> TeacherClient::Score(
    const std::vector<Request>& requests) {
  return Batch(*this, requests).Run();
}

}  // namespace tandem::driver
