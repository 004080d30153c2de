#include "common/model/families/config_reader.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace tandem::model {
namespace {

using nlohmann::json;

// Compares unsigned numbers as unsigned: large ones would wrap.
bool IsTokenId(const json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>() <= uint64_t{kMaxVocab};
  return value.is_number_integer();
}

}  // namespace

bool ConfigReader::Has(const char* key) const {
  return object_.contains(key) && !object_[key].is_null();
}

absl::Status ConfigReader::Invalid(const char* key, const std::string& expected) const {
  const std::string found = object_.contains(key) ? object_[key].dump().substr(0, 80) : "nothing";
  return absl::InvalidArgumentError(
      absl::StrCat(place_, ": \"", key, "\" must be ", expected, "; found ", found));
}

absl::Status ConfigReader::Unsupported(const char* key, const std::string& supported) const {
  const std::string found = object_.contains(key) ? object_[key].dump().substr(0, 80) : "absent";
  return absl::UnimplementedError(
      absl::StrCat(place_, ": \"", key, "\" is ", found, "; supported: ", supported));
}

absl::StatusOr<int64_t> ConfigReader::Size(const char* key, int64_t most,
                                           std::optional<int64_t> absent) const {
  if (!Has(key) && absent.has_value()) return *absent;
  return Integer(key, 1, most);
}

absl::StatusOr<int64_t> ConfigReader::Count(const char* key, int64_t most, int64_t absent) const {
  return Has(key) ? Integer(key, 0, most) : absent;
}

absl::StatusOr<int64_t> ConfigReader::Integer(const char* key, int64_t least, int64_t most) const {
  if (!Has(key) || !At(key).is_number_integer() || At(key) < least || At(key) > most) {
    return Invalid(key, absl::StrCat("an integer from ", least, " to ", most));
  }
  return At(key).get<int64_t>();
}

absl::StatusOr<double> ConfigReader::Positive(const char* key, double absent) const {
  if (!Has(key)) return absent;
  if (!At(key).is_number() || !(At(key).get<double>() > 0) ||
      !std::isfinite(At(key).get<double>())) {
    return Invalid(key, "a positive number");
  }
  return At(key).get<double>();
}

absl::StatusOr<double> ConfigReader::NonNegative(const char* key, double absent) const {
  if (!Has(key)) return absent;
  if (!At(key).is_number() || !(At(key).get<double>() >= 0) ||
      !std::isfinite(At(key).get<double>())) {
    return Invalid(key, "a number from 0 on");
  }
  return At(key).get<double>();
}

absl::StatusOr<bool> ConfigReader::Flag(const char* key, bool absent) const {
  if (!Has(key)) return absent;
  if (!At(key).is_boolean()) return Invalid(key, "true or false");
  return At(key).get<bool>();
}

absl::StatusOr<std::string> ConfigReader::Text(const char* key, const std::string& absent) const {
  if (!Has(key)) return absent;
  if (!At(key).is_string()) return Invalid(key, "a string");
  return At(key).get<std::string>();
}

absl::StatusOr<std::optional<int64_t>> ConfigReader::TokenId(const char* key) const {
  if (!Has(key)) return std::optional<int64_t>();
  // Some configs list several ids here; text begins with the first.
  const json& value = At(key).is_array() && !At(key).empty() ? At(key)[0] : At(key);
  if (!IsTokenId(value)) return Invalid(key, "a token id");
  if (value < 0) return std::optional<int64_t>();
  return std::optional<int64_t>(value.get<int64_t>());
}

absl::StatusOr<std::vector<int64_t>> ConfigReader::TokenIds(const char* key) const {
  std::vector<int64_t> ids;
  if (!Has(key)) return ids;
  const json list = At(key).is_array() ? At(key) : json::array({At(key)});
  for (const json& id : list) {
    if (!IsTokenId(id)) return Invalid(key, "a token id or a list of them");
    if (id >= 0) ids.push_back(id.get<int64_t>());
  }
  return ids;
}

}  // namespace tandem::model
