#include "services/trainer/service/train_step_reactor.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/rpc/enum_check.h"
#include "common/rpc/status_conversion.h"
#include "common/rpc/trace_interceptor.h"
#include "common/status/status_macros.h"
#include "services/trainer/data/preference_pairs.h"
#include "services/trainer/data/training_batch.h"

namespace tandem::trainer {
namespace {

// Limit on the memory that one call can take on the leader, far above a step's.
constexpr int64_t kMaxStepTokens = int64_t{64} << 20;
constexpr size_t kMaxStepSamples = size_t{1} << 20;

bool HasTrainedToken(const common::v1::Sample& sample) {
  const TrainingBatch batch = MakeTrainingBatch({&sample, 1});
  return batch.num_trained_tokens() > 0;
}

}  // namespace

TrainStepReactor::TrainStepReactor(grpc::CallbackServerContext* context, TrainerLeader& leader,
                                   CommandQueue& queue, v1::TrainStepResponse* response)
    : context_(context),
      leader_(leader),
      queue_(queue),
      response_(response),
      images_(leader.NewImages()) {
  const absl::Status refusal = leader_.status().Refusal();
  if (!refusal.ok()) {
    Finish(rpc::ToGrpcStatus(refusal));
  } else {
    StartRead(&message_);
  }
}

void TrainStepReactor::OnReadDone(bool ok) {
  if (context_->IsCancelled()) {
    Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the caller cancelled"));
    return;
  }
  if (!ok) {  // the caller has closed its side
    const std::string digest = digest_.Hex();
    const absl::Status complete = CheckComplete(digest);
    if (!complete.ok()) {
      Finish(rpc::ToGrpcStatus(complete));
    } else {
      Submit(StepSamples{std::move(samples_), digest, std::move(images_).Take()});
    }
    return;
  }
  const absl::Status taken = message_.has_sample()  ? TakeSample()
                             : message_.has_image() ? TakeImage()
                                                    : TakeHeader();
  if (!taken.ok()) {
    Finish(rpc::ToGrpcStatus(taken));
  } else if (!submitted_) {
    StartRead(&message_);
  }
}

absl::Status TrainStepReactor::TakeHeader() {
  if (!message_.has_header() || header_.has_value()) {
    return rpc::InvalidField("content", header_.has_value()
                                            ? "expected a sample or an image; found a second "
                                              "header or nothing"
                                            : "expected a header; found nothing");
  }
  RETURN_IF_ERROR(rpc::CheckEnums(message_));
  header_ = message_.header();
  ASSIGN_OR_RETURN(const TrainerLeader::HeaderMeaning meaning, leader_.CheckHeader(*header_));
  limits_ = leader_.LimitsFor(header_->objective());
  if (meaning == TrainerLeader::HeaderMeaning::kRepeat) {
    submitted_ = true;
    Submit(std::nullopt);
  }
  return absl::OkStatus();
}

absl::Status TrainStepReactor::TakeSample() {
  const std::string place = absl::StrCat("samples[", samples_.size(), "]");
  RETURN_IF_ERROR(rpc::CheckEnums(message_.sample(), place));
  if (!header_.has_value()) {
    return rpc::InvalidField("header", "expected before the first sample; found none");
  }
  common::v1::Sample& sample = *message_.mutable_sample();
  RETURN_IF_ERROR(ValidateSample(sample, place, limits_));
  RETURN_IF_ERROR(images_.Check(sample, place));
  if (limits_.needs_reward_parts && !samples_.empty()) {
    RETURN_IF_ERROR(CheckSameRewardParts(samples_.front(), sample, place));
  }
  if (!sample.sample_id().empty() && !sample_ids_.insert(sample.sample_id()).second) {
    return rpc::InvalidField(absl::StrCat(place, ".sample_id"),
                             absl::StrCat("expected an id that is unique in the step; found \"",
                                          sample.sample_id(), "\" again"));
  }
  for (const common::v1::Segment& segment : sample.segments())
    num_tokens_ += segment.token_ids_size();
  if (num_tokens_ > kMaxStepTokens || samples_.size() >= kMaxStepSamples) {
    return absl::ResourceExhaustedError(
        absl::StrCat(place, ": a step takes at most ", kMaxStepSamples, " samples and ",
                     kMaxStepTokens, " tokens; lower data.train_batch_size"));
  }
  digest_.Add(sample);
  samples_.push_back(std::move(sample));
  return absl::OkStatus();
}

absl::Status TrainStepReactor::TakeImage() {
  if (!header_.has_value()) {
    return rpc::InvalidField("header", "expected before the first image; found none");
  }
  return images_.Add(std::move(*message_.mutable_image()));
}

absl::Status TrainStepReactor::CheckComplete(const std::string& digest) const {
  if (!header_.has_value()) return rpc::InvalidField("header", "expected a header; found nothing");
  if (header_->num_samples() != 0 &&
      header_->num_samples() != static_cast<int64_t>(samples_.size())) {
    return rpc::InvalidField(
        "header.num_samples",
        absl::StrCat("expected ", header_->num_samples(), " samples, as the header states; found ",
                     samples_.size(), " before the stream ended"));
  }
  if (!header_->samples_digest().empty() && header_->samples_digest() != digest) {
    return absl::DataLossError(absl::StrCat("the samples of step ", header_->step(),
                                            " arrived damaged: expected digest ",
                                            header_->samples_digest(), ", found ", digest));
  }
  if (samples_.empty()) return rpc::InvalidField("samples", "expected at least one; found none");
  RETURN_IF_ERROR(images_.CheckAllShown());
  if (header_->objective() == v1::OBJECTIVE_PREFERENCE) {
    return FindPreferencePairs(MakeTrainingBatch(samples_)).status();
  }
  for (const common::v1::Sample& sample : samples_) {
    if (HasTrainedToken(sample)) return absl::OkStatus();
  }
  return rpc::InvalidField(
      "samples", absl::StrCat("expected a token to train on: sampled, not masked out, and not "
                              "the first of its sample; found none in ",
                              samples_.size(), " samples"));
}

void TrainStepReactor::Submit(std::optional<StepSamples> samples) {
  // std::function requires a copyable target.
  auto shared = std::make_shared<std::optional<StepSamples>>(std::move(samples));
  const absl::Status queued = queue_.Submit([this, shared] {
    const telemetry::ScopedTraceContext trace(rpc::TraceContextIn(&context_->client_metadata()));
    if (context_->IsCancelled()) {
      Finish(
          grpc::Status(grpc::StatusCode::CANCELLED, "the caller cancelled before the step began"));
      return;
    }
    absl::StatusOr<v1::TrainStepResponse> result = leader_.TrainStep(*header_, *shared);
    if (result.ok()) *response_ = *std::move(result);
    Finish(rpc::ToGrpcStatus(result.status()));
  });
  if (!queued.ok()) Finish(rpc::ToGrpcStatus(queued));
}

}  // namespace tandem::trainer
