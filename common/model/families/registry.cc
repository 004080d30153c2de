#include "common/model/families/registry.h"

namespace tandem::model {

absl::Span<const Family* const> Families() {
  static constexpr const Family* kFamilies[] = {
      &kLlama,
      &kQwen2,
      &kQwen3,
  };
  return kFamilies;
}

}  // namespace tandem::model
