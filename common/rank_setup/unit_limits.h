// Chooses the units that FSDP gathers at once.
#ifndef TANDEM_COMMON_RANK_SETUP_UNIT_LIMITS_H_
#define TANDEM_COMMON_RANK_SETUP_UNIT_LIMITS_H_

#include <cstdint>

#include "common/comm/mesh_shape.h"
#include "common/model/model_spec.h"
#include "common/model/parameter_table.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::setup {

// Returns trainer.min_unit_bytes and trainer.max_unit_bytes in elements of `element_bytes`, and
// trainer.frozen_parameters. If the first is 0, chooses it: a rank's part of a unit has at least
// 1 MiB, below which a collective's latency outweighs its bytes, but no unit has more than an
// eighth of the model, because two are held at once.
model::UnitLimits UnitLimitsOf(const config::v1::TrainerConfig& trainer,
                               const model::ModelSpec& spec, const comm::MeshShape& mesh,
                               int64_t element_bytes);

}  // namespace tandem::setup

#endif  // TANDEM_COMMON_RANK_SETUP_UNIT_LIMITS_H_
