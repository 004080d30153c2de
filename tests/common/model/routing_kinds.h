// Routing of every kind that the families have.
#ifndef TANDEM_TESTS_COMMON_MODEL_ROUTING_KINDS_H_
#define TANDEM_TESTS_COMMON_MODEL_ROUTING_KINDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "common/model/layers/expert_spec.h"

namespace tandem::model {

struct RoutingKind {
  std::string name;
  RoutingSpec spec;
};

inline constexpr int64_t kExpertsOfKinds = 48;

inline std::vector<RoutingKind> RoutingKinds() {
  using Score = RoutingSpec::Score;
  using GroupScore = RoutingSpec::GroupScore;
  return {
      {"Softmax", {.top_k = 8}},
      {"SoftmaxNormalized", {.top_k = 8, .normalize = true}},
      {"SoftmaxScaled", {.top_k = 8, .scale = 2.5}},
      {"SoftmaxCorrected", {.top_k = 8, .normalize = true, .correction_bias = true}},
      {"SoftmaxInGroups", {.top_k = 6, .num_groups = 8, .top_groups = 3, .scale = 16}},
      {"Sigmoid", {.top_k = 8, .score = Score::kSigmoid}},
      {"SigmoidOfChosen", {.top_k = 8, .score = Score::kSigmoidOfChosen}},
      {"SigmoidNormalized",
       {.top_k = 8, .normalize = true, .score = Score::kSigmoid, .correction_bias = true}},
      {"SigmoidInGroups",
       {.top_k = 8,
        .normalize = true,
        .score = Score::kSigmoid,
        .correction_bias = true,
        .num_groups = 6,
        .top_groups = 2,
        .group_score = GroupScore::kSumOfTwo,
        .scale = 2.5}},
      {"SigmoidInGroupsOfOne",
       {.top_k = 8,
        .score = Score::kSigmoid,
        .num_groups = 48,
        .top_groups = 16,
        .group_score = GroupScore::kSumOfTwo}},
      {"Sparsemixer", {.top_k = 2, .score = Score::kSparsemixer, .jitter = 0.2}},
      {"SparsemixerOfThree",
       {.top_k = 3, .score = Score::kSparsemixer, .scale = 0.5, .jitter = 0.4}},
  };
}

}  // namespace tandem::model

#endif  // TANDEM_TESTS_COMMON_MODEL_ROUTING_KINDS_H_
