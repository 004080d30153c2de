// ConfigReader: typed access to the keys of one JSON object of a config.json.
#ifndef TANDEM_COMMON_MODEL_FAMILIES_CONFIG_READER_H_
#define TANDEM_COMMON_MODEL_FAMILIES_CONFIG_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace tandem::model {

// Larger sizes mean a corrupt file; within these limits no product of sizes overflows an int64.
inline constexpr int64_t kMaxVocab = int64_t{1} << 28;
inline constexpr int64_t kMaxWidth = int64_t{1} << 22;
inline constexpr int64_t kMaxLayers = int64_t{1} << 14;
inline constexpr int64_t kMaxHeads = int64_t{1} << 14;
inline constexpr int64_t kMaxHeadDim = int64_t{1} << 12;
inline constexpr int64_t kMaxPositions = int64_t{1} << 31;

// Errors name the file and the key: INVALID_ARGUMENT for a value that no model has, UNIMPLEMENTED
// for one that this program does not support. `object` outlives the reader.
class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& object, std::string place)
      : object_(object), place_(std::move(place)) {}

  const std::string& place() const { return place_; }
  const nlohmann::json& object() const { return object_; }
  // False also for null.
  bool Has(const char* key) const;
  bool IsNull(const char* key) const { return object_.contains(key) && object_[key].is_null(); }
  // The value of a key that is present.
  const nlohmann::json& At(const char* key) const { return object_[key]; }

  absl::Status Invalid(const char* key, const std::string& expected) const;
  absl::Status Unsupported(const char* key, const std::string& supported) const;

  // An integer from 1 to `most`. If the key is missing: `absent`, or an error if there is no
  // `absent`.
  absl::StatusOr<int64_t> Size(const char* key, int64_t most,
                               std::optional<int64_t> absent = std::nullopt) const;
  // The same from 0 on.
  absl::StatusOr<int64_t> Count(const char* key, int64_t most, int64_t absent) const;
  absl::StatusOr<double> Positive(const char* key, double absent) const;
  absl::StatusOr<double> NonNegative(const char* key, double absent) const;
  absl::StatusOr<bool> Flag(const char* key, bool absent) const;
  absl::StatusOr<std::string> Text(const char* key, const std::string& absent) const;
  // Returns the first id of a list; nullopt for a negative id, which means "none".
  absl::StatusOr<std::optional<int64_t>> TokenId(const char* key) const;
  absl::StatusOr<std::vector<int64_t>> TokenIds(const char* key) const;

 private:
  absl::StatusOr<int64_t> Integer(const char* key, int64_t least, int64_t most) const;

  const nlohmann::json& object_;
  const std::string place_;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_CONFIG_READER_H_
