// Frozen parameters: patterns over the parameters' canonical names, those of Llama's tensors, say
// which parameters are not trained.
//
//   RETURN_IF_ERROR(CheckFrozenParameters(spec, {"model.embed_tokens.weight", "*norm.weight"}));
//   const ParameterTable table(spec, {.frozen_parameters = {"model.embed_tokens.weight"}});
#ifndef TANDEM_COMMON_MODEL_FROZEN_PARAMETERS_H_
#define TANDEM_COMMON_MODEL_FROZEN_PARAMETERS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/model/model_spec.h"
#include "common/model/parameter.h"

namespace tandem::model {

// Whether the pattern matches the whole name; '*' stands for any characters, also none.
bool MatchesPattern(absl::string_view pattern, absl::string_view name);

// Whether the patterns match every segment of the parameter.
bool IsFrozen(const Parameter& parameter, const std::vector<std::string>& patterns);

// INVALID_ARGUMENT, naming the pattern or tensor: a pattern that matches no tensor, a parameter of
// which only some segments match (q without k and v, which are one matrix product), or patterns
// that leave nothing to train. Messages begin with "trainer.frozen_parameters".
absl::Status CheckFrozenParameters(const ModelSpec& spec, const std::vector<std::string>& patterns);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FROZEN_PARAMETERS_H_
