// The kinds of norms and activations that the models' layers have, for tests that go through all.
#ifndef TANDEM_TESTS_COMMON_MODEL_LAYER_KINDS_H_
#define TANDEM_TESTS_COMMON_MODEL_LAYER_KINDS_H_

#include <ATen/ATen.h>

#include <vector>

#include "common/model/activation.h"
#include "common/model/norm.h"

namespace tandem::model {

inline std::vector<NormSpec> NormKinds() {
  std::vector<NormSpec> kinds;
  for (const NormKind kind : {NormKind::kRms, NormKind::kLayer}) {
    for (const bool unit_offset : {false, true}) {
      for (const bool bias : {false, true}) {
        kinds.push_back({kind, 1e-5, /*weight=*/true, bias, unit_offset});
      }
    }
    kinds.push_back({kind, 1e-5, /*weight=*/false});
  }
  return kinds;
}

// A norm with parameters drawn at random, in the type of `options`.
inline Norm RandomNorm(const NormSpec& spec, int64_t size, const at::TensorOptions& options) {
  Norm norm{spec, {}, {}};
  if (spec.weight) norm.weight = at::randn({size}).to(options);
  if (spec.bias) norm.bias = at::randn({size}).to(options);
  return norm;
}

// With alphas for xIELU, which has no gate.
inline std::vector<ActivationFunction> ActivationKinds(const at::TensorOptions& options) {
  std::vector<ActivationFunction> kinds;
  for (const Activation activation :
       {Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kQuickGelu,
        Activation::kRelu, Activation::kRelu2, Activation::kXielu, Activation::kClampedSwiglu}) {
    for (const bool gated : {true, false}) {
      at::Tensor alphas;
      if (activation == Activation::kXielu && gated) continue;
      if (activation == Activation::kClampedSwiglu && !gated) continue;
      if (activation == Activation::kXielu) alphas = at::tensor({0.3f, -0.7f}).to(options);
      kinds.push_back({activation, gated, alphas});
    }
  }
  return kinds;
}

}  // namespace tandem::model

#endif  // TANDEM_TESTS_COMMON_MODEL_LAYER_KINDS_H_
