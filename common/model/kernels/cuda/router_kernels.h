// Launches the kernels that route tokens to experts on a CUDA device: the choice, the weights and the
// order of the rows that experts compute (router.h, expert_rows.h). A row's result depends only on
// that row, bit for bit. Each call queues on `stream`, whose device must be current, and returns the
// launch's error code. The calls allocate nothing and keep no address, so that launches can be
// captured in a CUDA graph.
#ifndef TANDEM_COMMON_MODEL_KERNELS_CUDA_ROUTER_KERNELS_H_
#define TANDEM_COMMON_MODEL_KERNELS_CUDA_ROUTER_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/model/layers/expert_spec.h"

namespace tandem::model::cuda {

inline constexpr int kMostExperts = 1024;
inline constexpr int kMostChosen = 32;
inline constexpr int kMostGroups = 32;

// What both launches read. Spec: as RoutingSpec has it.
struct RoutedLogits {
  RoutingSpec::Score score = RoutingSpec::Score::kSoftmax;
  int64_t rows = 0;
  int num_experts = 0;                     // at most kMostExperts
  int top_k = 0;                           // at most kMostChosen
  const float* logits = nullptr;           // [rows, num_experts]
  const float* correction_bias = nullptr;  // [num_experts], or null
};

// The experts of each row, ascending. Of equal ranks the lower expert counts first; NaN is less than
// any number.
struct ChooseExperts {
  RoutedLogits routed;
  int num_groups = 1;  // at most kMostGroups
  int top_groups = 1;
  RoutingSpec::GroupScore group_score = RoutingSpec::GroupScore::kLargest;
  int64_t* experts = nullptr;  // [rows, top_k]
};
cudaError_t Launch(const ChooseExperts& args, cudaStream_t stream);

// The weights of chosen experts; NaN for a row that has one among its logits, and for all rows if
// the correction bias has one.
struct WeighExperts {
  RoutedLogits routed;
  bool normalize = false;
  float scale = 1.0f;
  float jitter = 0.0f;
  const int64_t* experts = nullptr;  // [rows, top_k], ascending
  float* weights = nullptr;          // [rows, top_k]
};
cudaError_t Launch(const WeighExperts& args, cudaStream_t stream);

// The rows of experts (ExpertRows): grouped by expert, in the order of tokens.
struct GroupRows {
  int64_t tokens = 0;
  int num_experts = 0;
  int top_k = 0;
  const int64_t* experts = nullptr;  // [tokens, top_k]
  int64_t* first = nullptr;          // [num_experts + 1]
  int64_t* token_of_row = nullptr;   // [tokens * top_k]
  int64_t* places = nullptr;         // [tokens, top_k]
};
cudaError_t Launch(const GroupRows& args, cudaStream_t stream);

}  // namespace tandem::model::cuda

#endif  // TANDEM_COMMON_MODEL_KERNELS_CUDA_ROUTER_KERNELS_H_
