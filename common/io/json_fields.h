// Reads typed fields of a JSON object; errors name the place and the field.
//
//   io::JsonFields fields(config, "/models/q/config.json");
//   ASSIGN_OR_RETURN(int64_t hidden_size, fields.Int("hidden_size"));
//   ASSIGN_OR_RETURN(bool tied, fields.BoolOr("tie_word_embeddings", false));
//   // "/models/q/config.json: hidden_size: expected an integer, found the string \"64\""
#ifndef TANDEM_COMMON_IO_JSON_FIELDS_H_
#define TANDEM_COMMON_IO_JSON_FIELDS_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::io {

// Refers to `object`, which must outlive it. Every error is INVALID_ARGUMENT. The plain readers
// require the field; the Or readers return `otherwise` if it is absent or null, and still refuse
// another type.
class JsonFields {
 public:
  // `source`: the text that `object` was parsed from, if available.
  JsonFields(const nlohmann::json& object, std::string place, absl::string_view source = {})
      : object_(object), place_(std::move(place)), source_(source) {}

  // Present and not null.
  bool Has(const std::string& key) const;

  absl::StatusOr<std::string> String(const std::string& key) const;
  absl::StatusOr<int64_t> Int(const std::string& key) const;
  absl::StatusOr<double> Double(const std::string& key) const;  // accepts integers
  absl::StatusOr<bool> Bool(const std::string& key) const;
  absl::StatusOr<std::vector<int64_t>> IntList(const std::string& key) const;
  absl::StatusOr<std::vector<double>> DoubleList(const std::string& key) const;
  absl::StatusOr<std::vector<std::string>> StringList(const std::string& key) const;
  // Returns a sub-object, whose errors name "PLACE: key".
  absl::StatusOr<JsonFields> Object(const std::string& key) const;

  absl::StatusOr<std::string> StringOr(const std::string& key, std::string otherwise) const;
  absl::StatusOr<int64_t> IntOr(const std::string& key, int64_t otherwise) const;
  absl::StatusOr<double> DoubleOr(const std::string& key, double otherwise) const;
  absl::StatusOr<bool> BoolOr(const std::string& key, bool otherwise) const;

  // "PLACE: key: message", for the caller's own checks.
  absl::Status Error(const std::string& key, const std::string& message) const;

  const nlohmann::json& json() const { return object_; }
  const std::string& place() const { return place_; }
  // For readers that depend on the order of keys, which json() does not keep.
  absl::string_view source() const { return source_; }

 private:
  const nlohmann::json* Find(const std::string& key) const;  // null where absent or null
  absl::Status Mismatch(const std::string& key, const char* expected,
                        const nlohmann::json* found) const;
  template <typename T, typename Convert>
  absl::StatusOr<std::vector<T>> List(const std::string& key, const char* expected,
                                      Convert convert) const;

  const nlohmann::json& object_;
  std::string place_;
  absl::string_view source_;
};

// A short description of a value for messages: `the string "ab..."`, `the number 3`, `an array`.
std::string Describe(const nlohmann::json& value);

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_JSON_FIELDS_H_
