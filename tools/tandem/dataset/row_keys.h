// Keys of a data row, and what to say when one is missing.
#ifndef TANDEM_TOOLS_TANDEM_DATASET_ROW_KEYS_H_
#define TANDEM_TOOLS_TANDEM_DATASET_ROW_KEYS_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::dataset {

// Returns the value of a key, or null if the row has none. A key with dots names a field of nested
// objects (`reward_model.ground_truth`), unless a field has that very name.
const nlohmann::json* FindKey(const nlohmann::json& row, absl::string_view key);
const nlohmann::ordered_json* FindKey(const nlohmann::ordered_json& row, absl::string_view key);

// The error of a row without `key`: names the configuration key that asked for it (`setting`), the
// row's keys and the nearest of them.
absl::Status MissingKey(const nlohmann::json& row, absl::string_view key,
                        absl::string_view setting);

// Returns a value as text: a string as it is, a number or a boolean as JSON writes it.
// INVALID_ARGUMENT for null, an object or a list.
absl::StatusOr<std::string> TextOf(const nlohmann::json& value, absl::string_view key);

}  // namespace tandem::dataset

#endif  // TANDEM_TOOLS_TANDEM_DATASET_ROW_KEYS_H_
