#include "services/rollout/runner/model_runner.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <exception>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/model/gather_rows.h"
#include "common/model/tensor_collectives.h"
#include "common/status/exceptions.h"
#include "common/status/status_macros.h"
#include "common/telemetry/log.h"
#include "services/rollout/runner/gather_logits.h"

namespace tandem::rollout {
namespace {

// Rows of logits that are there at once for the likeliest tokens of a score.
constexpr int64_t kTopLogprobRows = 32;

}  // namespace

absl::StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Create(
    const model::Transformer& model, const model::PagedKvCacheOptions& cache_options,
    const ForwardOptions& forward_options) {
  RETURN_IF_ERROR(CheckDevice(cache_options.device));
  ASSIGN_OR_RETURN(model::PagedKvCache cache, model::PagedKvCache::Create(cache_options));
  std::unique_ptr<ModelRunner> runner(new ModelRunner(model, std::move(cache)));
  ASSIGN_OR_RETURN(runner->forward_, CreateForwardPass(model, runner->cache_, forward_options));
  return runner;
}

absl::StatusOr<StepOutput> ModelRunner::Run(const model::ParameterProvider& params,
                                            absl::Span<const RunItem> items,
                                            const CacheCopies& copies) {
  try {
    const std::shared_ptr<void> entered = forward_->Enter();
    const model::UseStepMemory use(&step_memory_);
    ASSIGN_OR_RETURN(const bool moved, cache_.TakeMemory());
    if (moved) forward_->Forget();
    for (const auto& [from, to] : copies.blocks) cache_.CopyBlock(from, to);
    for (const auto& [from, to] : copies.states) cache_.CopyState(from, to);
    StepOutput out = RunUnchecked(params, items);
    // Weights may be written, and the arrays of this step, once it is over.
    forward_->Synchronize();
    return out;
  } catch (const model::CollectiveError& error) {
    return error.status();
  } catch (const std::exception& error) {
    const absl::Status thrown = StatusOf(error);
    return absl::Status(thrown.code(),
                        absl::StrCat("the model's forward pass failed: ", thrown.message()));
  }
}

absl::Status ModelRunner::Sample(absl::Span<const SampleRow> rows, bool to_host, StepOutput& output,
                                 absl::Span<SampledToken> tokens) {
  try {
    const std::shared_ptr<void> entered = forward_->Enter();
    rollout::Sample(output.logits, rows, tokens);
    if (to_host) output.logits = output.logits.cpu();
    return absl::OkStatus();
  } catch (const std::exception& error) {
    const absl::Status thrown = StatusOf(error);
    return absl::Status(thrown.code(), absl::StrCat("sampling failed: ", thrown.message()));
  }
}

void ModelRunner::ReleaseCache() {
  cache_.ReleaseMemory();
  ReleaseUnused();
}

void ModelRunner::ReleaseUnused() {
  step_memory_.ReleaseUnused();
  try {
    forward_->Forget();
  } catch (const std::exception& error) {
    telemetry::LogError("cannot return memory to the system", {{"error", error.what()}});
  }
}

StepOutput ModelRunner::RunUnchecked(const model::ParameterProvider& params,
                                     absl::Span<const RunItem> items) {
  const c10::InferenceMode inference;
  int64_t num_tokens = 0;
  int64_t num_sampling = 0;
  for (const RunItem& item : items) {
    num_tokens += item.num_tokens;
    num_sampling += item.samples ? 1 : 0;
  }

  // Only images have positions of three kinds.
  const bool has_images = std::any_of(items.begin(), items.end(), [](const RunItem& item) {
    return item.sequence->places != nullptr;
  });
  const size_t num_axes = has_images ? 3 : 1;
  ForwardBatch batch{model::EmptyTensor({num_tokens}, at::kLong),
                     has_images ? model::EmptyTensor({3, num_tokens}, at::kLong)
                                : model::EmptyTensor({num_tokens}, at::kLong),
                     {}};
  at::Tensor last_rows = model::EmptyTensor({num_sampling}, at::kLong);
  int64_t* ids = batch.token_ids.mutable_data_ptr<int64_t>();
  int64_t* position = batch.positions.mutable_data_ptr<int64_t>();
  int64_t* last_row = last_rows.mutable_data_ptr<int64_t>();
  sequences_.clear();
  bool scores = false;
  bool classifies = false;
  std::vector<int64_t> image_tokens;
  std::vector<at::Tensor> image_rows;
  const auto& vision = model_.spec().vision;
  const bool sees_ahead = vision.has_value() && vision->images_see_ahead;
  std::vector<std::vector<int64_t>> seen_ends;  // of items with images
  int64_t row = 0;
  for (const RunItem& item : items) {
    const Sequence& sequence = *item.sequence;
    if (item.image_rows.defined()) {
      const int64_t first = sequence.num_computed;
      const absl::Span<const int64_t> tokens =
          sequence.places->TokensIn(first, first + item.num_tokens);
      for (const int64_t token : tokens) image_tokens.push_back(row + token - first);
      image_rows.push_back(item.image_rows);
      if (sees_ahead) {
        seen_ends.push_back(model::SeenEnds(tokens, first, first + item.num_tokens));
      }
    }
    const bool has_seen_ends = sees_ahead && item.image_rows.defined();
    sequences_.push_back({.first_token = row,
                          .num_tokens = item.num_tokens,
                          .context_length = sequence.num_computed + item.num_tokens,
                          .blocks = sequence.blocks.data(),
                          .state = sequence.state,
                          .seen_ends = has_seen_ends ? seen_ends.back().data() : nullptr});
    scores = scores || item.scores;
    classifies = classifies || item.classifies;
    for (int64_t i = 0; i < item.num_tokens; ++i, ++row) {
      for (size_t axis = 0; axis < num_axes; ++axis) {
        position[static_cast<int64_t>(axis) * num_tokens + row] =
            sequence.PositionOf(sequence.num_computed + i, axis);
      }
      ids[row] = sequence.tokens[sequence.num_computed + i];
    }
    if (item.samples) *last_row++ = row - 1;
  }
  batch.sequences = sequences_;
  if (!image_rows.empty()) {
    batch.image_tokens = at::tensor(image_tokens, at::kLong);
    batch.image_rows = image_rows.size() == 1 ? image_rows.front() : at::cat(image_rows);
  }

  // Before what may wait for other ranks: a copy to the device waits for all that is queued there.
  const at::Tensor sampling_rows = last_rows.to(cache_.options().device);
  std::optional<model::ExpertRecorder> recorder;
  const bool records = std::any_of(items.begin(), items.end(),
                                   [](const RunItem& item) { return item.records_experts; });
  if (records) {
    recorder.emplace(routed_layout_.value(), num_tokens);
    batch.recorder = &*recorder;
  }
  const at::Tensor x = forward_->Run(params, batch);  // [num_tokens, hidden]

  StepOutput out;
  if (records) TakeExperts(*recorder, items, out);
  if (num_sampling > 0) {
    const at::Tensor sampled = num_sampling == num_tokens ? x : model::GatherRows(x, sampling_rows);
    out.logits = GatherLogits(model_, model_.Logits(params, model_.FinalNorm(params, sampled)));
  }
  if (scores) Score(params, x, items, out);
  if (classifies) Classify(params, x, items, out);
  return out;
}

void ModelRunner::Classify(const model::ParameterProvider& params, const at::Tensor& x,
                           absl::Span<const RunItem> items, StepOutput& out) {
  // Row by row, so that no result depends on the others that are computed with it.
  std::vector<at::Tensor> logits;
  int64_t row = 0;
  for (const RunItem& item : items) {
    row += item.num_tokens;
    if (!item.classifies) continue;
    logits.push_back(model_.Values(params, model_.FinalNorm(params, x.narrow(0, row - 1, 1))));
  }
  const at::Tensor all = at::cat(logits);
  forward_->Synchronize();  // or the copy would wait, without a deadline
  const at::Tensor on_host = all.cpu().contiguous();
  const float* next = on_host.const_data_ptr<float>();
  for (const RunItem& item : items) {
    std::vector<float>& of_item = out.class_logits.emplace_back();
    if (item.classifies) of_item.push_back(*next++);
  }
}

void ModelRunner::TakeExperts(const model::ExpertRecorder& recorder,
                              absl::Span<const RunItem> items, StepOutput& out) {
  int64_t row = 0;
  for (const RunItem& item : items) {
    std::vector<uint16_t>& experts = out.routed_experts.emplace_back();
    if (item.records_experts) {
      const absl::Span<const uint16_t> own = recorder.Of(row, item.num_tokens);
      experts.assign(own.begin(), own.end());
    }
    row += item.num_tokens;
  }
}

void ModelRunner::Score(const model::ParameterProvider& params, const at::Tensor& x,
                        absl::Span<const RunItem> items, StepOutput& out) {
  out.scores.resize(items.size());
  out.score_top_logprobs.resize(items.size());
  int64_t row = 0;
  for (size_t i = 0; i < items.size(); row += items[i].num_tokens, ++i) {
    const RunItem& item = items[i];
    if (!item.scores) continue;
    const Sequence& sequence = *item.sequence;
    const int64_t next = FirstScoredOf(item, sequence.num_computed);
    const int64_t skipped = next - 1 - sequence.num_computed;  // rows that predict earlier tokens
    const int64_t count = std::min(item.num_tokens - skipped, sequence.num_tokens() - next);
    if (count <= 0) continue;
    at::Tensor targets = at::empty({count}, at::kLong);
    std::copy_n(sequence.tokens.begin() + next, count, targets.mutable_data_ptr<int64_t>());
    const at::Tensor temperatures = at::full({count}, item.score_temperature, at::kFloat);
    forward_->Synchronize();  // or the copies would wait, without a deadline
    targets = targets.to(x.device());
    const at::Tensor scales = temperatures.to(x.device());
    const at::Tensor hidden = model_.FinalNorm(params, x.narrow(0, row + skipped, count));
    const at::Tensor of_head = model_.HeadLogProbs(params, hidden, targets, scales).logprobs;
    forward_->Synchronize();
    const at::Tensor logprobs = of_head.cpu().contiguous();
    const float* data = logprobs.const_data_ptr<float>();
    out.scores[i].assign(data, data + count);
    if (item.num_top_logprobs == 0) continue;
    const int64_t vocab_size = model_.spec().vocab_size;
    for (int64_t begin = 0; begin < count; begin += kTopLogprobRows) {
      const int64_t num_rows = std::min(kTopLogprobRows, count - begin);
      const at::Tensor logits = model_.Logits(params, hidden.narrow(0, begin, num_rows))
                                    .to(at::kFloat)
                                    .cpu()
                                    .contiguous();
      for (int64_t k = 0; k < num_rows; ++k) {
        out.score_top_logprobs[i].push_back(TopLogprobs(
            logits.const_data_ptr<float>() + k * vocab_size, vocab_size, item.num_top_logprobs,
            {sequence.tokens[next + begin + k], data[begin + k]}));
      }
    }
  }
}

}  // namespace tandem::rollout
