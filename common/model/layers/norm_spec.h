// NormSpec: a normalisation over the last dim as numbers, without tensors, and its parameters.
//
//   NormSpec gemma{.kind = NormKind::kRms, .eps = 1e-6, .unit_offset = true};
//   NormParameters at = DeclareNorm(gemma, 512, "model.norm.", declarations);
#ifndef TANDEM_COMMON_MODEL_LAYERS_NORM_SPEC_H_
#define TANDEM_COMMON_MODEL_LAYERS_NORM_SPEC_H_

#include <cstdint>
#include <string>

namespace tandem::model {

class ParameterDeclarations;

enum class NormKind {
  kRms,    // x / sqrt(mean(x^2) + eps) (1910.07467)
  kLayer,  // the mean is subtracted first (1607.06450)
};

struct NormSpec {
  NormKind kind = NormKind::kRms;
  double eps = 1e-6;
  bool weight = true;        // a scale for each element
  bool bias = false;         // added after the scale
  bool unit_offset = false;  // the scale is 1 + weight; the weight starts from zero

  friend bool operator==(const NormSpec&, const NormSpec&) = default;
};

// What a norm needs from the parameter table; -1 for parameters that it does not have.
struct NormParameters {
  int weight = -1;
  int bias = -1;
};

// Declares what the norm has of PREFIXweight and PREFIXbias, [size], whole on every rank.
NormParameters DeclareNorm(const NormSpec& spec, int64_t size, const std::string& prefix,
                           ParameterDeclarations& declarations);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_LAYERS_NORM_SPEC_H_
