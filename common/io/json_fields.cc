#include "common/io/json_fields.h"

#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::io {
namespace {

using Json = nlohmann::json;

std::optional<int64_t> AsInt(const Json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  return std::nullopt;
}

std::optional<double> AsDouble(const Json& value) {
  if (value.is_number()) return value.get<double>();
  return std::nullopt;
}

std::optional<std::string> AsString(const Json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>();
  return std::nullopt;
}

}  // namespace

std::string Describe(const Json& value) {
  constexpr size_t kLongest = 60;
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return absl::StrCat("an array of ", value.size());
    default:
      break;
  }
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  if (value.is_string()) return "the string " + text;
  return value.is_number() ? "the number " + text : text;
}

bool JsonFields::Has(const std::string& key) const { return Find(key) != nullptr; }

const Json* JsonFields::Find(const std::string& key) const {
  if (!object_.is_object()) return nullptr;
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

absl::Status JsonFields::Error(const std::string& key, const std::string& message) const {
  return absl::InvalidArgumentError(absl::StrCat(place_, ": ", key, ": ", message));
}

absl::Status JsonFields::Mismatch(const std::string& key, const char* expected,
                                  const Json* found) const {
  return Error(key, absl::StrCat("expected ", expected, ", found ",
                                 found == nullptr ? "no such field" : Describe(*found)));
}

absl::StatusOr<std::string> JsonFields::String(const std::string& key) const {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_string()) return Mismatch(key, "a string", value);
  return value->get<std::string>();
}

absl::StatusOr<int64_t> JsonFields::Int(const std::string& key) const {
  const Json* value = Find(key);
  const std::optional<int64_t> number = value == nullptr ? std::nullopt : AsInt(*value);
  if (!number.has_value()) return Mismatch(key, "an integer", value);
  return *number;
}

absl::StatusOr<double> JsonFields::Double(const std::string& key) const {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_number()) return Mismatch(key, "a number", value);
  return value->get<double>();
}

absl::StatusOr<bool> JsonFields::Bool(const std::string& key) const {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_boolean()) return Mismatch(key, "true or false", value);
  return value->get<bool>();
}

template <typename T, typename Convert>
absl::StatusOr<std::vector<T>> JsonFields::List(const std::string& key, const char* expected,
                                                Convert convert) const {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_array()) return Mismatch(key, expected, value);
  std::vector<T> out;
  out.reserve(value->size());
  for (const Json& element : *value) {
    std::optional<T> converted = convert(element);
    if (!converted.has_value()) {
      return Error(key, absl::StrCat("expected ", expected, ", found ", Describe(element),
                                     " at position ", out.size()));
    }
    out.push_back(*std::move(converted));
  }
  return out;
}

absl::StatusOr<std::vector<int64_t>> JsonFields::IntList(const std::string& key) const {
  return List<int64_t>(key, "an array of integers", AsInt);
}

absl::StatusOr<std::vector<double>> JsonFields::DoubleList(const std::string& key) const {
  return List<double>(key, "an array of numbers", AsDouble);
}

absl::StatusOr<std::vector<std::string>> JsonFields::StringList(const std::string& key) const {
  return List<std::string>(key, "an array of strings", AsString);
}

absl::StatusOr<JsonFields> JsonFields::Object(const std::string& key) const {
  const Json* value = Find(key);
  if (value == nullptr || !value->is_object()) return Mismatch(key, "an object", value);
  return JsonFields(*value, absl::StrCat(place_, ": ", key));
}

absl::StatusOr<std::string> JsonFields::StringOr(const std::string& key,
                                                 std::string otherwise) const {
  if (!Has(key)) return otherwise;
  return String(key);
}

absl::StatusOr<int64_t> JsonFields::IntOr(const std::string& key, int64_t otherwise) const {
  if (!Has(key)) return otherwise;
  return Int(key);
}

absl::StatusOr<double> JsonFields::DoubleOr(const std::string& key, double otherwise) const {
  if (!Has(key)) return otherwise;
  return Double(key);
}

absl::StatusOr<bool> JsonFields::BoolOr(const std::string& key, bool otherwise) const {
  if (!Has(key)) return otherwise;
  return Bool(key);
}

}  // namespace tandem::io
