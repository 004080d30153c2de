#include "common/model/kernels/instruction_sets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/model/kernels/instruction_sets.cc"
// clang-format off: first, so that all of this is compiled for every target
#include "hwy/foreach_target.h"
// clang-format on

#include "common/model/kernels/bfloat16_product.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tandem::model::kernels::HWY_NAMESPACE {

const char* VectorsName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace tandem::model::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace tandem::model::kernels {

HWY_EXPORT(VectorsName);

std::string InstructionSets() {
  const std::string vectors = HWY_DYNAMIC_DISPATCH(VectorsName)();
  switch (CurrentBFloat16Unit()) {
    case BFloat16Unit::kTiles:
      return vectors + " AMX";
    case BFloat16Unit::kVectors:
      return vectors + " AVX512-BF16";
    case BFloat16Unit::kNone:
      break;
  }
  return vectors;
}

}  // namespace tandem::model::kernels

#endif  // HWY_ONCE
