#include "common/model/layers/norm_spec.h"

#include <utility>

#include "common/model/parameter.h"

namespace tandem::model {

NormParameters DeclareNorm(const NormSpec& spec, int64_t size, const std::string& prefix,
                           ParameterDeclarations& declarations) {
  NormParameters at;
  if (spec.weight) {
    Segment weight = Whole(prefix + "weight", {size});
    if (spec.unit_offset) weight.initial_value = 0.0f;
    at.weight = declarations.Add(Single(std::move(weight), ParameterRole::kNorm, kReplicate));
  }
  if (spec.bias) {
    at.bias =
        declarations.Add(Single(Whole(prefix + "bias", {size}), ParameterRole::kBias, kReplicate));
  }
  return at;
}

}  // namespace tandem::model
