// ModelRunner: builds the flat batch of a scheduled step, runs the model over the paged cache, and
// returns logits for the tokens to sample.
//
//   ASSIGN_OR_RETURN(auto runner, ModelRunner::Create(model, cache_options));
//   const RunItem item{.sequence = &sequence, .num_tokens = 5, .samples = true};
//   ASSIGN_OR_RETURN(StepOutput out, runner->Run(arena, {item}, copies));
#ifndef TANDEM_SERVICES_ROLLOUT_RUNNER_MODEL_RUNNER_H_
#define TANDEM_SERVICES_ROLLOUT_RUNNER_MODEL_RUNNER_H_

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/paged_kv_cache.h"
#include "common/model/parameter_provider.h"
#include "common/model/step_memory.h"
#include "common/model/transformer.h"
#include "services/rollout/runner/forward_pass.h"
#include "services/rollout/sampler/sampler.h"
#include "services/rollout/sampler/top_logprobs.h"
#include "services/rollout/scheduler/sequence.h"

namespace tandem::rollout {

// One sequence's part of a step: its next tokens from num_computed on.
struct RunItem {
  const Sequence* sequence = nullptr;
  int64_t num_tokens = 0;
  bool samples = false;            // wants the logits after its last token
  bool scores = false;             // wants the log-probs of its following given tokens
  bool classifies = false;         // wants the logits of the classification head at its last token
  double score_temperature = 1.0;  // > 0
  int64_t first_scored = 1;        // the first token of the sequence that is scored; >= 1
  int32_t num_top_logprobs = 0;    // per score; not with tensor parallelism
  // Rows of the placeholders of images among its tokens (model::EncodeImages()), on the CPU or the runner's
  // device; undefined: none.
  at::Tensor image_rows;
  bool records_experts = false;  // wants the experts of its tokens; needs a model that has a
                                 // model::RoutedLayout
};

// The first token that a step scores of the item's sequence, which has `num_computed` tokens in the cache
// before the step. It may lie behind the step's tokens: then it scores none.
inline int64_t FirstScoredOf(const RunItem& item, int64_t num_computed) {
  return std::max(num_computed + 1, item.first_scored);
}

// What to copy in the cache before a step, in this order; each (from, to).
struct CacheCopies {
  absl::Span<const std::pair<int32_t, int32_t>> blocks = {};
  absl::Span<const std::pair<int32_t, int32_t>> states = {};  // of linear attention
};

struct StepOutput {
  // float32 [number of items with `samples`, vocab], in item order, on the runner's device;
  // undefined on tensor-parallel ranks other than the first.
  at::Tensor logits;
  // Per item, in order: the log-probs of the tokens after its own, from FirstScoredOf() on. Empty if no
  // item scores.
  std::vector<std::vector<float>> scores;
  // Per item and position: the top log-probs, if the item asks for them.
  std::vector<std::vector<std::vector<TokenLogprob>>> score_top_logprobs;
  // Per item: the logits of the classification head at its last token. Empty if no item classifies.
  std::vector<std::vector<float>> class_logits;
  // Per item, in order: the experts of its tokens (model::RoutedLayout), if it wants them. Empty if
  // no item does.
  std::vector<std::vector<uint16_t>> routed_experts;
};

// Owns the KV cache; the cache's device is the compute device. Used by the engine thread, parallel
// on ATen's threads. With tensor parallelism, every rank's runner must get the same steps.
class ModelRunner {
 public:
  // `model` must outlive the runner. Errors: those of PagedKvCache::Create() and
  // CreateForwardPass().
  static absl::StatusOr<std::unique_ptr<ModelRunner>> Create(
      const model::Transformer& model, const model::PagedKvCacheOptions& cache_options,
      const ForwardOptions& forward_options = {});

  // Copies, then computes, synchronously. RESOURCE_EXHAUSTED if the cache was released and a
  // GPU cannot allocate it again; INTERNAL, with LibTorch's message, if an operation throws; the
  // group's error if a collective fails. After an error the items' cache contents are undefined.
  absl::StatusOr<StepOutput> Run(const model::ParameterProvider& params,
                                 absl::Span<const RunItem> items, const CacheCopies& copies);

  // Samples a token for each of `rows` from Run()'s output. `to_host`: also moves its logits to the
  // host. INTERNAL like Run().
  absl::Status Sample(absl::Span<const SampleRow> rows, bool to_host, StepOutput& output,
                      absl::Span<SampledToken> tokens);

  // Like ForwardPass's: for work that shares the forward passes' stream, which comes before the steps
  // that read its results.
  std::shared_ptr<void> Enter() { return forward_->Enter(); }
  void Synchronize() { forward_->Synchronize(); }

  const model::PagedKvCache& cache() const { return cache_; }

  // Returns the cache's memory to the system; its contents are lost.
  void ReleaseCache();
  // Returns freed memory that a GPU's caching allocator still holds to the system.
  void ReleaseUnused();

 private:
  ModelRunner(const model::Transformer& model, model::PagedKvCache cache)
      : model_(model),
        routed_layout_(model::RoutedLayout::Of(model.spec())),
        cache_(std::move(cache)) {}

  StepOutput RunUnchecked(const model::ParameterProvider& params, absl::Span<const RunItem> items);
  static void TakeExperts(const model::ExpertRecorder& recorder, absl::Span<const RunItem> items,
                          StepOutput& out);
  void Score(const model::ParameterProvider& params, const at::Tensor& x,
             absl::Span<const RunItem> items, StepOutput& out);
  void Classify(const model::ParameterProvider& params, const at::Tensor& x,
                absl::Span<const RunItem> items, StepOutput& out);

  const model::Transformer& model_;
  const absl::StatusOr<model::RoutedLayout> routed_layout_;
  model::PagedKvCache cache_;
  std::unique_ptr<ForwardPass> forward_;  // over cache_
  model::StepMemory step_memory_;
  std::vector<model::PagedSequence> sequences_;  // reused by each step
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RUNNER_MODEL_RUNNER_H_
