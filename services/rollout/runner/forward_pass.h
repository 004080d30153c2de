// ForwardPass: the model's stages over a step's tokens, on the device of the KV cache.
//
//   ASSIGN_OR_RETURN(auto forward, CreateForwardPass(model, cache));
//   const auto entered = forward->Enter();
//   at::Tensor x = forward->Run(params, {token_ids, positions, sequences});
#ifndef TANDEM_SERVICES_ROLLOUT_RUNNER_FORWARD_PASS_H_
#define TANDEM_SERVICES_ROLLOUT_RUNNER_FORWARD_PASS_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/paged_attention.h"
#include "common/model/paged_kv_cache.h"
#include "common/model/parameter_provider.h"
#include "common/model/transformer.h"

namespace tandem::rollout {

// The tokens of a step, sequence by sequence.
struct ForwardBatch {
  at::Tensor token_ids;  // int64 [num_tokens], on the CPU
  at::Tensor positions;  // likewise
  absl::Span<const model::PagedSequence> sequences;
};

// One thread. What an operation or the device refuses is thrown, as ATen does.
class ForwardPass {
 public:
  virtual ~ForwardPass() = default;

  // While the result lives, what this thread queues on the device goes to the stream of the forward
  // passes. Null where nothing is queued.
  virtual std::shared_ptr<void> Enter() = 0;

  // After Enter(). Returns what the last block gives, [num_tokens, hidden] on the device, until the
  // next Run(); keys and values are in the cache then.
  virtual at::Tensor Run(const model::ParameterProvider& params, const ForwardBatch& batch) = 0;

  // Returns when all that was queued is done.
  virtual void Synchronize() = 0;

  // To be called when the cache's memory has moved or was released.
  virtual void Forget() = 0;
};

// The stages from tokens to what the last block gives, [num_tokens, hidden]. token_ids and
// positions: int64 [num_tokens], where the parameters are.
at::Tensor RunStages(const model::Transformer& model, const model::ParameterProvider& params,
                     const at::Tensor& token_ids, const at::Tensor& positions,
                     model::Attention& attention);

// What a graph captures is decode steps: one new token of each sequence, of no more sequences than
// this.
inline constexpr int64_t kMostGraphRows = 512;

// The rows of the graph that decodes so many sequences: as many, or a few more, so that the batches
// of a run are served by few graphs. 0: more than kMostGraphRows.
int64_t GraphRows(int64_t num_sequences);

struct ForwardOptions {
  // On a GPU: decode steps are captured as CUDA graphs, and repeated.
  bool graphs = true;
};

// Whether a model can be computed there: UNIMPLEMENTED for a CUDA device in a build without
// TANDEM_CUDA, UNAVAILABLE where the machine has no such GPU.
absl::Status CheckDevice(at::Device device);

// Both outlive the pass. The errors of CheckDevice() and model::CreateCudaAttention().
absl::StatusOr<std::unique_ptr<ForwardPass>> CreateForwardPass(const model::Transformer& model,
                                                               const model::PagedKvCache& cache,
                                                               const ForwardOptions& options = {});

// The file that a build with TANDEM_CUDA links defines them; the other answers UNIMPLEMENTED.
absl::Status CheckCudaDevice(at::Device device);
absl::StatusOr<std::unique_ptr<ForwardPass>> CreateCudaForwardPass(const model::Transformer& model,
                                                                   const model::PagedKvCache& cache,
                                                                   const ForwardOptions& options);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RUNNER_FORWARD_PASS_H_
