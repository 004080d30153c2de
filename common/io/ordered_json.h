// JSON objects that keep the order of their keys. nlohmann-json's ordered_json searches all keys of
// an object for each one that it adds; what is here takes linear time, so that an object of a
// hundred thousand keys does not take a minute.
//
//   ASSIGN_OR_RETURN(const nlohmann::ordered_json row, io::ParseOrderedJson(line));
#ifndef TANDEM_COMMON_IO_ORDERED_JSON_H_
#define TANDEM_COMMON_IO_ORDERED_JSON_H_

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::io {

// Returns and refuses the same as ParseJson<nlohmann::ordered_json>() (parse_json.h).
absl::StatusOr<nlohmann::ordered_json> ParseOrderedJson(absl::string_view text);

// Adds keys to one object, which nobody else changes meanwhile.
class OrderedKeys {
 public:
  // Returns the value of `key`, null if it is new. Valid until the next call.
  nlohmann::ordered_json& ValueAt(nlohmann::ordered_json& object, std::string key);

 private:
  absl::flat_hash_map<std::string, size_t> indices_;  // empty while the object is small
};

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_ORDERED_JSON_H_
