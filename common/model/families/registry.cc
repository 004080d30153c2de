#include "common/model/families/registry.h"

namespace tandem::model {

absl::Span<const Family* const> Families() {
  static constexpr const Family* kFamilies[] = {
      &kLlama, &kMixtral, &kQwen2, &kQwen2Moe, &kQwen3, &kQwen3Moe,
  };
  return kFamilies;
}

}  // namespace tandem::model
