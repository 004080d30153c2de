// Reads values of foreign JSON, and treats a missing or mistyped value as absent. Use JsonFields
// where that is an error.
//
//   const double seconds = io::NumberOr(event, "dur", 0);
#ifndef TANDEM_COMMON_IO_JSON_VALUES_H_
#define TANDEM_COMMON_IO_JSON_VALUES_H_

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace tandem::io {

// Null if `object` is no object or has no such key.
inline const nlohmann::json* FindValue(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

inline double NumberOr(const nlohmann::json& object, const char* key, double otherwise) {
  const nlohmann::json* value = FindValue(object, key);
  return value != nullptr && value->is_number() ? value->get<double>() : otherwise;
}

// Rounds fractions towards zero.
inline int64_t IntegerOr(const nlohmann::json& object, const char* key, int64_t otherwise) {
  const nlohmann::json* value = FindValue(object, key);
  if (value == nullptr || !value->is_number()) return otherwise;
  if (value->is_number_integer()) return value->get<int64_t>();
  const auto number = value->get<double>();
  constexpr double kLimit = 9.2e18;  // of int64_t, with a margin
  return std::abs(number) < kLimit ? static_cast<int64_t>(number) : otherwise;
}

inline std::string TextOr(const nlohmann::json& object, const char* key, std::string otherwise) {
  const nlohmann::json* value = FindValue(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : otherwise;
}

}  // namespace tandem::io

#endif  // TANDEM_COMMON_IO_JSON_VALUES_H_
