// ModelRunner: the tensors of a step. Builds the flat batch of what the scheduler planned, runs the
// model's stages over the paged cache, and returns logits for the tokens that are sampled.
//
//   ASSIGN_OR_RETURN(auto runner, ModelRunner::Create(model, cache_options));
//   ASSIGN_OR_RETURN(StepOutput out, runner->Run(arena, {{&sequence, 5, .samples = true}},
//   copies));
#ifndef TANDEM_SERVICES_ROLLOUT_RUNNER_MODEL_RUNNER_H_
#define TANDEM_SERVICES_ROLLOUT_RUNNER_MODEL_RUNNER_H_

#include <ATen/core/Tensor.h>

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

// The part of a step that one sequence takes: its tokens from num_computed on.
struct RunItem {
  const Sequence* sequence = nullptr;
  int64_t num_tokens = 0;
  bool samples = false;            // wants the logits that follow its last token
  bool scores = false;             // wants the log-prob of every given token that follows
  double score_temperature = 1.0;  // > 0
  int32_t num_top_logprobs = 0;    // beside each score; not over a tensor-parallel group
};

struct StepOutput {
  // float32 [number of items that sample, vocab], in the order of items, on the runner's device;
  // undefined on ranks of a tensor-parallel group other than the first.
  at::Tensor logits;
  // For each item, in order, unless none scores: the log-probs of the tokens after its own.
  std::vector<std::vector<float>> scores;
  // As many lists for each item, of the likeliest tokens at each place, where it asks for them.
  std::vector<std::vector<std::vector<TokenLogprob>>> score_top_logprobs;
};

// Owns the KV cache, whose device is the one that computes. Used by the engine thread; ATen's
// threads share the work. Over a tensor-parallel group every rank's runner is given the same steps.
class ModelRunner {
 public:
  // `model` outlives the runner. The errors of PagedKvCache::Create() and CreateForwardPass().
  static absl::StatusOr<std::unique_ptr<ModelRunner>> Create(
      const model::Transformer& model, const model::PagedKvCacheOptions& cache_options,
      const ForwardOptions& forward_options = {});

  // Copies blocks, then computes; when it returns everything is done. RESOURCE_EXHAUSTED where the
  // cache's memory was released and a GPU refuses it now; INTERNAL, with LibTorch's words, where an
  // operation throws, and the group's error where a collective fails; the items' cache contents are
  // undefined then.
  absl::StatusOr<StepOutput> Run(const model::ParameterProvider& params,
                                 absl::Span<const RunItem> items,
                                 absl::Span<const std::pair<int32_t, int32_t>> block_copies);

  // A token for each of `rows`, of what Run() gave. `to_host`: brings its logits to the host then.
  // INTERNAL as Run().
  absl::Status Sample(absl::Span<const SampleRow> rows, bool to_host, StepOutput& output,
                      absl::Span<SampledToken> tokens);

  const model::PagedKvCache& cache() const { return cache_; }

  // Gives the cache's memory back to the system; all that it held is lost.
  void ReleaseCache();
  // Gives back what a GPU's allocator holds of memory that was freed elsewhere.
  void ReleaseUnused();

 private:
  ModelRunner(const model::Transformer& model, model::PagedKvCache cache)
      : model_(model), cache_(std::move(cache)) {}

  StepOutput RunUnchecked(const model::ParameterProvider& params, absl::Span<const RunItem> items);
  void Score(const model::ParameterProvider& params, const at::Tensor& x,
             absl::Span<const RunItem> items, StepOutput& out);

  const model::Transformer& model_;
  model::PagedKvCache cache_;
  std::unique_ptr<ForwardPass> forward_;  // over cache_
  model::StepMemory step_memory_;
  std::vector<model::PagedSequence> sequences_;  // of the step
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RUNNER_MODEL_RUNNER_H_
