// Checks the files that a configuration names: the model's folder against its config.json, the
// tokenizer, the data.
#ifndef TANDEM_TOOLS_TANDEM_DOCTOR_MODEL_CHECKS_H_
#define TANDEM_TOOLS_TANDEM_DOCTOR_MODEL_CHECKS_H_

#include <optional>

#include "common/model/model_spec.h"
#include "tandem/config/v1/run_config.pb.h"
#include "tools/tandem/doctor/finding.h"

namespace tandem::doctor {

// Returns the model's spec if config.json can be read.
std::optional<model::ModelSpec> CheckModel(const config::v1::RunConfig& config, Findings& findings);

void CheckData(const config::v1::RunConfig& config, Findings& findings);

}  // namespace tandem::doctor

#endif  // TANDEM_TOOLS_TANDEM_DOCTOR_MODEL_CHECKS_H_
