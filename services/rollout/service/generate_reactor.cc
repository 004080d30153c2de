#include "services/rollout/service/generate_reactor.h"

#include <utility>

#include "common/rpc/new_uuid.h"
#include "common/rpc/status_conversion.h"
#include "common/status/exceptions.h"
#include "common/status/status_macros.h"
#include "services/rollout/requests/convert.h"
#include "services/rollout/requests/wanted_weights.h"

namespace tandem::rollout {
namespace {

// A shorter text takes a few milliseconds at most.
constexpr size_t kMaxInlineTextBytes = size_t{16} << 10;

}  // namespace

GenerateReactor* GenerateReactor::Start(Engine& engine, const PromptTexts& texts,
                                        RolloutMetrics* metrics,
                                        const v1::GenerateRequest& request) {
  std::shared_ptr<GenerateReactor> reactor(new GenerateReactor(engine, metrics));
  {
    absl::MutexLock lock(&reactor->mu_);
    reactor->self_ = reactor;
  }
  reactor->Begin(texts, request);
  return reactor.get();
}

void GenerateReactor::Begin(const PromptTexts& texts, const v1::GenerateRequest& request) {
  const std::string& text = request.text();  // empty for token ids
  if (const absl::Status fits = texts.limits.CheckText(text, "text"); !fits.ok()) {
    return OnEngineDone(fits);
  }
  if (text.size() <= kMaxInlineTextBytes && request.images().empty())
    return Run(texts.tokenizer, request);
  std::shared_ptr<GenerateReactor> self;
  {
    absl::MutexLock lock(&mu_);
    self = self_;
  }
  // gRPC keeps the request until the call ends, which this one does after its turn.
  const bool queued = texts.pool->Submit(
      [self, tokenizer = texts.tokenizer, request = &request] { self->Run(tokenizer, *request); });
  if (!queued) {
    OnEngineDone(absl::ResourceExhaustedError(
        "no thread available to tokenize the text or to read the images; try again later"));
  }
}

void GenerateReactor::Run(const tokenizer::Tokenizer* tokenizer,
                          const v1::GenerateRequest& request) {
  bool cancelled = false;
  {
    absl::MutexLock lock(&mu_);
    cancelled = cancelled_;
  }
  const absl::Status status =
      cancelled ? absl::CancelledError("the caller cancelled before the prompt was read")
                : Catch([&] { return Submit(tokenizer, request); });
  if (!status.ok()) OnEngineDone(status);
}

absl::Status GenerateReactor::Submit(const tokenizer::Tokenizer* tokenizer,
                                     const v1::GenerateRequest& request) {
  RETURN_IF_ERROR(CheckWantedWeights(request.incarnation(), engine_));
  ASSIGN_OR_RETURN(GenerationRequest spec, FromProto(request, tokenizer));
  ASSIGN_OR_RETURN(spec.images,
                   engine_.ReadImages(ImageFilesOf(request.images()), spec.prompt_ids));
  if (spec.id.empty()) spec.id = rpc::NewUuid();
  request_id_ = spec.id;
  processed_logprobs_ = request.sampling().processed_logprobs();
  std::shared_ptr<GenerateReactor> self;
  {
    absl::MutexLock lock(&mu_);
    self = self_;
    num_unfinished_ = spec.n;
  }
  ASSIGN_OR_RETURN(
      const int64_t handle,
      engine_.Submit(std::move(spec),
                     {.on_chunk = [self](SampleChunk chunk) { self->OnChunk(std::move(chunk)); },
                      .on_done = [self](absl::Status status) { self->OnEngineDone(status); }}));
  absl::MutexLock lock(&mu_);
  handle_ = handle;
  if (cancelled_) engine_.Cancel(handle);
  return absl::OkStatus();
}

void GenerateReactor::OnChunk(SampleChunk chunk) {
  absl::MutexLock lock(&mu_);
  observed_.OnChunk(chunk);
  if (chunk.finish_reason != FinishReason::kNone) --num_unfinished_;
  if (cancelled_) return;
  pending_.Add(std::move(chunk));
  // The engine ends the request right after its last chunk: both leave in one message.
  if (num_unfinished_ > 0) Continue();
}

void GenerateReactor::OnEngineDone(const absl::Status& status) {
  absl::MutexLock lock(&mu_);
  observed_.OnDone(status);
  engine_done_ = true;
  status_ = status;
  Continue();
}

void GenerateReactor::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mu_);
  is_writing_ = false;
  if (!ok) {
    cancelled_ = true;
    if (handle_ >= 0) engine_.Cancel(handle_);
  }
  Continue();
}

void GenerateReactor::OnCancel() {
  absl::MutexLock lock(&mu_);
  cancelled_ = true;
  if (handle_ >= 0) engine_.Cancel(handle_);
  Continue();
}

void GenerateReactor::OnDone() {
  std::shared_ptr<GenerateReactor> self;  // outlives the lock, which is its own
  absl::MutexLock lock(&mu_);
  self = std::move(self_);
}

void GenerateReactor::Continue() {
  if (is_writing_ || finished_) return;
  if (!pending_.empty() && !cancelled_) {
    writing_ = ToProto(pending_.Take(), request_id_, processed_logprobs_);
    is_writing_ = true;
    if (engine_done_ && pending_.empty()) {
      finished_ = true;
      StartWriteAndFinish(&writing_, grpc::WriteOptions(), rpc::ToGrpcStatus(status_));
    } else {
      StartWrite(&writing_);
    }
  } else if (engine_done_) {
    finished_ = true;
    Finish(rpc::ToGrpcStatus(status_));
  }
}

}  // namespace tandem::rollout
