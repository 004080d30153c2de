// Finds a model's shape by name, for planning on machines without the model's folder.
#ifndef TANDEM_TOOLS_TANDEM_PLAN_MODEL_SHAPE_H_
#define TANDEM_TOOLS_TANDEM_PLAN_MODEL_SHAPE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/model/model_spec.h"

namespace tandem::plan {

// Returns the model of `path`: from config.json if it is a folder; otherwise the built-in shape
// that the path's last part names, ignoring case and training suffixes
// ("/models/Qwen2.5-7B-Instruct" is qwen2.5-7b). NOT_FOUND begins with `key`, names the nearest
// shape and lists all.
absl::StatusOr<model::ModelSpec> FindModelShape(const std::string& path,
                                                absl::string_view key = "model.path");

// The same for a critic, whose folder may be a ...ForTokenClassification.
absl::StatusOr<model::ModelSpec> FindValueModelShape(const std::string& path,
                                                     absl::string_view key = "critic.model.path");

}  // namespace tandem::plan

#endif  // TANDEM_TOOLS_TANDEM_PLAN_MODEL_SHAPE_H_
