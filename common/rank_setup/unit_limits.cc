#include "common/rank_setup/unit_limits.h"

#include <algorithm>

namespace tandem::setup {
namespace {

constexpr int64_t kLeastBytesOfARank = int64_t{1} << 20;
constexpr int64_t kFewestUnits = 8;

}  // namespace

model::UnitLimits UnitLimitsOf(const config::v1::TrainerConfig& trainer,
                               const model::ModelSpec& spec, const comm::MeshShape& mesh,
                               int64_t element_bytes) {
  int64_t min_bytes = trainer.min_unit_bytes();
  if (min_bytes == 0) {
    const int64_t model_bytes =
        model::ParameterTable(spec).num_parameters() / mesh.tp * element_bytes;
    min_bytes = std::min(kLeastBytesOfARank * mesh.num_shards(), model_bytes / kFewestUnits);
  }
  if (trainer.max_unit_bytes() > 0) min_bytes = std::min(min_bytes, trainer.max_unit_bytes());
  return {min_bytes / element_bytes,
          trainer.max_unit_bytes() / element_bytes,
          {trainer.frozen_parameters().begin(), trainer.frozen_parameters().end()}};
}

}  // namespace tandem::setup
