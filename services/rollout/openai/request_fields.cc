#include "services/rollout/openai/request_fields.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/io/json_fields.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"

namespace tandem::rollout::openai {
namespace {

using nlohmann::ordered_json;

}  // namespace

std::string DescribeValue(const ordered_json& value) {
  if (value.is_array()) return value.empty() ? "an empty array" : "an array";
  if (value.is_object()) return "an object";
  return io::Describe(nlohmann::json(value));
}

const ordered_json* RequestFields::Find(const std::string& name) {
  known_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

absl::Status RequestFields::Error(const std::string& name, absl::string_view expected) const {
  const auto found = object_.find(name);
  return rpc::InvalidField(
      prefix_ + name, absl::StrCat("expected ", expected, ", found ",
                                   found == object_.end() ? "nothing" : DescribeValue(*found)));
}

absl::Status RequestFields::Read(const std::string& name, double& out) {
  const ordered_json* value = Find(name);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_number()) return Error(name, "a number");
  out = value->get<double>();
  return absl::OkStatus();
}

absl::Status RequestFields::Read(const std::string& name, int64_t& out) {
  const ordered_json* value = Find(name);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_number_integer() ||
      (value->is_number_unsigned() && value->get<uint64_t>() > INT64_MAX)) {
    return Error(name, "an integer");
  }
  out = value->get<int64_t>();
  return absl::OkStatus();
}

absl::Status RequestFields::Read(const std::string& name, int32_t& out) {
  int64_t wide = out;
  RETURN_IF_ERROR(Read(name, wide));
  if (wide < INT32_MIN || wide > INT32_MAX) return Error(name, "an integer of 32 bits");
  out = static_cast<int32_t>(wide);
  return absl::OkStatus();
}

absl::Status RequestFields::Read(const std::string& name, bool& out) {
  const ordered_json* value = Find(name);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_boolean()) return Error(name, "true or false");
  out = value->get<bool>();
  return absl::OkStatus();
}

absl::Status RequestFields::Read(const std::string& name, std::string& out) {
  const ordered_json* value = Find(name);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_string()) return Error(name, "a string");
  out = value->get<std::string>();
  return absl::OkStatus();
}

absl::Status RequestFields::ReadStrings(const std::string& name, std::vector<std::string>& out) {
  const ordered_json* value = Find(name);
  if (value == nullptr) return absl::OkStatus();
  const auto is_string = [](const ordered_json& item) { return item.is_string(); };
  if (value->is_string()) {
    out = {value->get<std::string>()};
  } else if (value->is_array() && std::all_of(value->begin(), value->end(), is_string)) {
    out = value->get<std::vector<std::string>>();
  } else {
    return Error(name, "a string or a list of strings");
  }
  return absl::OkStatus();
}

absl::Status RequestFields::ReadIds(const std::string& name, std::vector<int32_t>& out) {
  const ordered_json* value = Find(name);
  if (value == nullptr) return absl::OkStatus();
  if (!value->is_array()) return Error(name, "a list of token ids");
  return ReadIdList(*value, prefix_ + name, out);
}

absl::Status RequestFields::ExpectNeutral(const std::string& name,
                                          std::initializer_list<ordered_json> neutral) {
  const ordered_json* value = Find(name);
  if (value == nullptr || (value->is_structured() && value->empty())) return absl::OkStatus();
  for (const ordered_json& accepted : neutral) {
    if (*value == accepted) return absl::OkStatus();
  }
  return rpc::InvalidField(prefix_ + name, absl::StrCat("is not supported; omit it (found ",
                                                        DescribeValue(*value), ")"));
}

void RequestFields::Ignore(std::initializer_list<const char*> names) {
  known_.insert(names.begin(), names.end());
}

absl::Status RequestFields::ExpectAllKnown() const {
  for (const auto& [name, value] : object_.items()) {
    if (known_.count(name) > 0) continue;
    return rpc::InvalidField(prefix_ + name.substr(0, 100), "unknown field");
  }
  return absl::OkStatus();
}

absl::Status ReadIdList(const ordered_json& list, const std::string& field,
                        std::vector<int32_t>& out) {
  out.clear();
  out.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const ordered_json& id = list[i];
    if (!id.is_number_integer()) {
      return rpc::InvalidField(
          field, absl::StrCat("[", i, "]: expected a token id, found ", DescribeValue(id)));
    }
    const int64_t value = id.is_number_unsigned() && id.get<uint64_t>() > INT32_MAX
                              ? -1
                              : std::max<int64_t>(id.get<int64_t>(), -1);
    out.push_back(static_cast<int32_t>(value));
  }
  return absl::OkStatus();
}

}  // namespace tandem::rollout::openai
