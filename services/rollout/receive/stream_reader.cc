#include "services/rollout/receive/stream_reader.h"

#include <ATen/ops/empty.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/hash/hasher.h"
#include "common/rpc/channel.h"
#include "common/rpc/message_digest.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "common/weights/tensor_digests.h"

namespace tandem::rollout {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(20);
constexpr absl::Duration kLongestPause = absl::Seconds(1);
constexpr absl::Duration kLogInterval = absl::Seconds(5);
constexpr int kMaxDamaged = 5;  // arrivals of one bucket
// From the last message to the call's status.
constexpr absl::Duration kEndGrace = absl::Seconds(1);

// Whether another connection to the same source may do better.
bool MayPass(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kResourceExhausted:
      return true;
    default:
      return false;
  }
}

}  // namespace

// One ReadWeights call. The message after the one that is looked at is on its way already. Reads
// are started by the thread that owns it, so it has gRPC hold the call open until it starts no
// more.
class StreamReader::Call : public grpc::ClientReadReactor<v1::ReadWeightsResponse> {
 public:
  Call(v1::WeightService::Stub& stub, grpc::ClientContext* context, v1::ReadWeightsRequest request)
      : context_(context), request_(std::move(request)) {
    stub.async()->ReadWeights(context_, &request_, this);
    AddHold();
    StartRead(&messages_[0]);
    StartCall();
  }
  ~Call() override {
    context_->TryCancel();
    WaitUntilDone().IgnoreError();
  }

  // The next message, which is valid until the next call; null after the last. UNAVAILABLE where
  // none comes for `patience`.
  absl::StatusOr<const v1::ReadWeightsResponse*> Next(absl::Duration patience) {
    {
      absl::MutexLock lock(&mu_);
      if (!mu_.AwaitWithTimeout(absl::Condition(&answered_), patience)) {
        return absl::UnavailableError(
            absl::StrCat("nothing arrived for ", absl::FormatDuration(patience)));
      }
    }
    if (!arrived_) {
      // The call ended, or a malformed message leaves it open and unread.
      if (EndsWithin(kEndGrace)) {
        RETURN_IF_ERROR(WaitUntilDone());
        return nullptr;
      }
      context_->TryCancel();
      return absl::DataLossError("a message arrived damaged: it cannot be parsed");
    }
    v1::ReadWeightsResponse* message = &messages_[current_];
    current_ = 1 - current_;
    answered_ = false;
    StartRead(&messages_[current_]);
    return message;
  }

 private:
  bool EndsWithin(absl::Duration timeout) {
    if (holds_) RemoveHold();
    holds_ = false;
    absl::MutexLock lock(&mu_);
    return mu_.AwaitWithTimeout(absl::Condition(&done_), timeout);
  }
  absl::Status WaitUntilDone() {
    EndsWithin(absl::InfiniteDuration());
    absl::MutexLock lock(&mu_);
    return status_;
  }
  void OnReadDone(bool ok) override {
    absl::MutexLock lock(&mu_);
    arrived_ = ok;
    answered_ = true;
  }
  void OnDone(const grpc::Status& status) override {
    absl::MutexLock lock(&mu_);
    status_ = rpc::FromGrpcStatus(status);
    done_ = true;
  }

  grpc::ClientContext* const context_;
  const v1::ReadWeightsRequest request_;
  std::array<v1::ReadWeightsResponse, 2> messages_;
  int current_ = 0;  // the one that is read into
  bool holds_ = true;
  absl::Mutex mu_;
  // State of the read in flight; once answered_, the owner's thread reads it without the lock.
  bool answered_ = false;
  bool arrived_ = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

struct StreamReader::Progress {
  std::unique_ptr<v1::WeightService::Stub> stub;
  at::Tensor buffer;  // of one bucket, uint8
  int bucket = 0;     // the first that the sink has not got
  int damaged = 0;    // times that it arrived so
  bool sink_failed = false;
  absl::Time heard;  // when bytes came last
  absl::Time logged;
  int64_t bytes = 0;  // that the sink has got
  weights::PhaseTimes* times;
};

absl::StatusOr<weights::TransferPlan> StreamReader::Plan(const weights::Manifest& manifest,
                                                         bool keeps_frozen) const {
  ASSIGN_OR_RETURN(const int64_t total, weights::ManifestBytes(manifest));
  return weights::MakeTransferPlan(
      manifest, weights::ChooseBucketBytes(options_.bucket_bytes, total), keeps_frozen);
}

void StreamReader::Abort() {
  absl::MutexLock lock(&mu_);
  if (context_ != nullptr) context_->TryCancel();
}

absl::Status StreamReader::ReadOnce(const Source& source, const weights::TransferPlan& plan,
                                    weights::BucketSink& sink, const absl::Notification& cancel,
                                    Progress& progress) {
  using Clock = weights::PhaseTimes::Clock;
  v1::ReadWeightsRequest request;
  request.set_policy_version(source.policy_version);
  request.set_manifest_digest(source.manifest_digest);
  request.set_bucket_bytes((plan.largest_bucket_bytes + 7) / 8 * 8);  // odd where there is but one
  request.set_first_bucket(progress.bucket);
  for (int tensor = 0; tensor < plan.manifest.tensors_size(); ++tensor) {
    if (!plan.Brings(tensor)) request.add_kept_tensors(tensor);
  }
  rpc::SetDigest(request);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(source.deadline));
  {
    absl::MutexLock lock(&mu_);
    context_ = &context;
  }
  const absl::Cleanup forget = [this] {
    absl::MutexLock lock(&mu_);
    context_ = nullptr;
  };
  // Checked after the context can be found: an abort either sees the one or is seen here.
  if (cancel.HasBeenNotified()) return absl::CancelledError("the update was dropped");

  Call call(*progress.stub, &context, std::move(request));
  auto* const buffer = static_cast<char*>(progress.buffer.data_ptr());
  hash::Hasher hasher;
  int64_t received = 0;  // of the bucket
  auto start = Clock::now();
  while (progress.bucket < static_cast<int>(plan.buckets.size())) {
    const absl::StatusOr<const v1::ReadWeightsResponse*> next = call.Next(options_.patience);
    if (absl::IsDataLoss(next.status())) ++progress.damaged;
    RETURN_IF_ERROR(next.status());
    const v1::ReadWeightsResponse* const message = *next;
    if (message == nullptr) return absl::UnavailableError("the stream ended early");
    const std::string& data = message->data();
    const int64_t size = plan.buckets[progress.bucket].size_bytes();
    if (message->bucket() != progress.bucket || data.empty() ||
        static_cast<int64_t>(data.size()) > size - received) {
      ++progress.damaged;
      return absl::DataLossError(absl::StrCat("expected at most ", size - received,
                                              " bytes, found ", data.size(), " of bucket ",
                                              message->bucket()));
    }
    progress.heard = absl::Now();
    std::memcpy(buffer + received, data.data(), data.size());
    hasher.Update(buffer + received, data.size());
    received += static_cast<int64_t>(data.size());
    if (received < size) continue;
    if (const std::string digest = hasher.Hex(); digest != message->bucket_digest()) {
      ++progress.damaged;
      return absl::DataLossError(absl::StrCat("arrived with digest ", digest, ", ",
                                              message->bucket_digest(), " was sent"));
    }
    start = progress.times->Worked("wire", start);
    absl::Status put =
        sink.Unpack(progress.bucket, weights::WholeBucket(plan.buckets[progress.bucket]),
                    progress.buffer.narrow(0, 0, size));
    start = progress.times->Worked("unpack", start);
    if (put.ok()) put = sink.Digest(progress.bucket);
    start = progress.times->Worked("verify", start);
    progress.sink_failed = !put.ok();
    RETURN_IF_ERROR(put);
    ++progress.bucket;
    progress.damaged = 0;
    progress.bytes += size;
    hasher.Reset();
    received = 0;
    if (progress.heard >= progress.logged + kLogInterval) {
      progress.logged = progress.heard;
      telemetry::LogInfo("reading weights", {{"source", source.address},
                                             {"version", source.policy_version},
                                             {"bytes", progress.bytes},
                                             {"total_bytes", plan.BroughtBytes()}});
    }
  }
  return absl::OkStatus();
}

absl::Status StreamReader::Read(const Source& source, const weights::TransferPlan& plan,
                                weights::BucketSink& sink, const absl::Notification& cancel,
                                weights::PhaseTimes& times) {
  const absl::Time start = absl::Now();
  Progress progress;
  rpc::ChannelOptions options;
  options.retry = false;  // a call that is repeated begins where the sink stands
  progress.stub = v1::WeightService::NewStub(rpc::MakeChannel(source.address, options));
  progress.buffer = at::empty({plan.largest_bucket_bytes}, at::kByte);
  progress.heard = progress.logged = start;
  progress.times = &times;
  absl::Duration pause = kFirstPause;
  int num_connections = 0;
  while (progress.bucket < static_cast<int>(plan.buckets.size())) {
    const int first = progress.bucket;
    const absl::Status status = ReadOnce(source, plan, sink, cancel, progress);
    ++num_connections;
    if (status.ok()) break;
    const std::string where =
        absl::StrCat(plan.BucketName(progress.bucket), " of ", source.address);
    if (cancel.HasBeenNotified()) return absl::CancelledError("the update was dropped");
    if (progress.sink_failed || !MayPass(status)) {
      RETURN_IF_ERROR(status) << where;
    }
    if (progress.damaged >= kMaxDamaged) {
      RETURN_IF_ERROR(status) << where << ", " << progress.damaged << " times";
    }
    const absl::Time now = absl::Now();
    if (now >= source.deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat(where, ": not read by the deadline; ", status.message()));
    }
    if (now >= progress.heard + options_.patience) {
      return absl::UnavailableError(absl::StrCat(where, ": nothing arrived for ",
                                                 absl::FormatDuration(options_.patience), "; ",
                                                 status.message()));
    }
    telemetry::LogWarning("resuming the interrupted read of weights",
                          {{"source", source.address},
                           {"version", source.policy_version},
                           {"bucket", progress.bucket},
                           {"buckets", plan.buckets.size()},
                           {"reason", status.message()}});
    pause = progress.bucket > first ? kFirstPause : std::min(2 * pause, kLongestPause);
    cancel.WaitForNotificationWithTimeout(std::min(pause, source.deadline - now));
  }
  telemetry::LogInfo("weights read", {{"source", source.address},
                                      {"version", source.policy_version},
                                      {"bytes", progress.bytes},
                                      {"connections", num_connections},
                                      {"seconds", absl::ToDoubleSeconds(absl::Now() - start)}});
  return absl::OkStatus();
}

}  // namespace tandem::rollout
