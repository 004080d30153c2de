// What the configurations of all vision towers have in common.
#ifndef TANDEM_COMMON_MODEL_FAMILIES_TOWER_CONFIG_H_
#define TANDEM_COMMON_MODEL_FAMILIES_TOWER_CONFIG_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/families/config_reader.h"
#include "common/model/model_spec.h"
#include "nlohmann/json.hpp"

namespace tandem::model {

inline constexpr int64_t kTowerColors = 3;
// Larger ones mean a corrupt file.
inline constexpr int64_t kMaxPatchSize = 1024;
inline constexpr int64_t kMaxMergeSize = 16;
// This matrix is stored as the convolution that it is in transformers.
inline constexpr char kPatchWeight[] = "visual.patch_embed.proj.weight";

// UNIMPLEMENTED, with the key, for another value than this one, which is also the default.
absl::Status RequireValue(const ConfigReader& config, const char* key, const nlohmann::json& value);
absl::Status RequireText(const ConfigReader& config, const char* key, const std::string& value);

// How a tower states its heads.
struct TowerHeads {
  const char* key;
  int64_t absent;         // their number where the file does not state it
  const char* width_key;  // of the tower's width
  int64_t multiple;       // of which a head's elements are
};
// Rows and columns have half of a head's pairs each.
inline constexpr int64_t kRotatedInHalves = 4;

// Sets numbers and sizes of heads of a tower that is `width` wide. INVALID_ARGUMENT if they do not fit.
absl::Status ParseTowerHeads(const ConfigReader& config, const TowerHeads& heads, int64_t width,
                             AttentionSpec& attention);

// Reads the rotation of patches, of which transformers 5 writes the keys.
absl::Status ParseTowerRope(const ConfigReader& config, VisionSpec& vision);

// Returns the placeholder's id, under either of its keys. `absent`: where the file has neither.
absl::StatusOr<int64_t> ImageTokenId(const ConfigReader& config, int64_t vocab_size,
                                     int64_t absent);

// UNIMPLEMENTED if a rope of the language model depends on the length of the sequence.
absl::Status CheckRopes(const ConfigReader& config, const ModelSpec& spec);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_TOWER_CONFIG_H_
