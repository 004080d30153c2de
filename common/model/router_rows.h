// The routing of single rows of float32 logits: the CPU's form of router.h. Loops are plain and in
// the order of experts, so a row's bits depend on nothing else.
//
//   RowRouter router(spec, num_experts, nullptr);
//   router.Choose(logits, chosen);
//   router.Weigh(logits, chosen, weights);
#ifndef TANDEM_COMMON_MODEL_ROUTER_ROWS_H_
#define TANDEM_COMMON_MODEL_ROUTER_ROWS_H_

#include <cstdint>
#include <vector>

#include "common/model/layers/expert_spec.h"

namespace tandem::model {

// 1 / (1 + exp(-x)).
float SigmoidOf(float x);

// Has buffers, so each thread needs its own. The arguments outlive it.
class RowRouter {
 public:
  // correction_bias: [num_experts], or null.
  RowRouter(const RoutingSpec& spec, int64_t num_experts, const float* correction_bias);

  // chosen: [top_k], ascending.
  void Choose(const float* logits, int64_t* chosen);
  void Weigh(const float* logits, const int64_t* chosen, float* weights);
  // weights: those of the forward pass. grad_logits: [num_experts].
  void WeighBackward(const float* logits, const int64_t* chosen, const float* weights,
                     const float* grad, float* grad_logits);

 private:
  // What the choice compares: logits where their order is that of the scores.
  const float* Ranks(const float* logits);
  // The groups whose experts can be chosen, ascending.
  void ChooseGroups(const float* ranks);
  void WeighBySigmoid(const float* logits, const int64_t* chosen, float* weights) const;
  void WeighBySoftmax(const float* logits, const int64_t* chosen, float* weights) const;
  void WeighBackwardOfSigmoid(const float* logits, const int64_t* chosen, const float* weights,
                              const float* grad, float* grad_logits) const;
  void WeighBackwardOfSoftmax(const float* logits, const int64_t* chosen, const float* weights,
                              const float* grad, float* grad_logits) const;
  // Calls body(j, is_near) for each chosen[j], those with the largest logits first; is_near(e) says
  // whether the softmax that gives its weight is over expert e too.
  template <typename Body>
  void ForSparsemixer(const float* logits, const int64_t* chosen, const Body& body);

  const RoutingSpec& spec_;
  const int64_t num_experts_;
  const float* const correction_bias_;
  bool is_damaged_ = false;  // the correction bias has a NaN
  std::vector<float> ranks_;
  std::vector<float> group_ranks_;
  std::vector<int64_t> groups_;
  std::vector<int64_t> order_;
  std::vector<bool> is_taken_;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_ROUTER_ROWS_H_
