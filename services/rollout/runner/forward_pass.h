// ForwardPass: runs the model's stages over a step's tokens, on the KV cache's device.
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

// The tokens of a step, grouped by sequence.
struct ForwardBatch {
  at::Tensor token_ids;  // int64 [num_tokens], on the CPU
  // int64 [num_tokens], or of a step with images [3, num_tokens] (Transformer::MakeRotary()); on the CPU
  at::Tensor positions;
  absl::Span<const model::PagedSequence> sequences;
  model::ExpertRecorder* recorder = nullptr;  // null: nothing is recorded
  // The rows of images (model::EncodeImages()) at image_tokens, int64 [num_rows] of the step's tokens, on
  // the CPU. Undefined: no images.
  at::Tensor image_tokens;
  at::Tensor image_rows;  // on the CPU or the cache's device
};

// One thread. Throws errors of operations and of the device, like ATen.
class ForwardPass {
 public:
  virtual ~ForwardPass() = default;

  // While the result lives, this thread queues device work on the forward passes' stream. Null if
  // the device has no queue.
  virtual std::shared_ptr<void> Enter() = 0;

  // Call after Enter(). Returns the last block's output, [num_tokens, hidden] on the device, valid
  // until the next Run(). Writes keys and values to the cache.
  virtual at::Tensor Run(const model::ParameterProvider& params, const ForwardBatch& batch) = 0;

  // Blocks until all queued work is done.
  virtual void Synchronize() = 0;

  // Call when the cache's memory has moved or was released.
  virtual void Forget() = 0;
};

// Runs the stages from tokens to the last block's output, [num_tokens, hidden]. token_ids and
// positions: as in ForwardBatch, on the parameters' device. `routers` may be null.
at::Tensor RunStages(const model::Transformer& model, const model::ParameterProvider& params,
                     const at::Tensor& token_ids, const at::Tensor& positions,
                     model::Attention& attention, const model::RouterPass* routers = nullptr,
                     const at::Tensor& image_tokens = {}, const at::Tensor& image_rows = {});

// CUDA graphs capture decode steps: one new token per sequence, for at most this many sequences.
inline constexpr int64_t kMostGraphRows = 512;

// Returns the graph size for so many sequences, rounded up a little so that few graphs serve a
// run's batches. 0: more than kMostGraphRows.
int64_t GraphRows(int64_t num_sequences);

struct ForwardOptions {
  // On a GPU: captures decode steps as CUDA graphs and replays them.
  bool graphs = true;
};

// Checks that a model can run there: UNIMPLEMENTED for a CUDA device in a build without
// TANDEM_CUDA, UNAVAILABLE if the machine has no such GPU.
absl::Status CheckDevice(at::Device device);

// Both must outlive the pass. Errors: those of CheckDevice() and model::CreateCudaAttention().
absl::StatusOr<std::unique_ptr<ForwardPass>> CreateForwardPass(const model::Transformer& model,
                                                               const model::PagedKvCache& cache,
                                                               const ForwardOptions& options = {});

// Defined in cuda_forward_pass.cc with TANDEM_CUDA; no_cuda_forward_pass.cc returns UNIMPLEMENTED.
absl::Status CheckCudaDevice(at::Device device);
absl::StatusOr<std::unique_ptr<ForwardPass>> CreateCudaForwardPass(const model::Transformer& model,
                                                                   const model::PagedKvCache& cache,
                                                                   const ForwardOptions& options);

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RUNNER_FORWARD_PASS_H_
