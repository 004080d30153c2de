// RequestFields: typed access to a request's JSON object. Remembers which fields were read, so that
// unknown fields are errors instead of being ignored.
//
//   RequestFields fields(body);
//   RETURN_IF_ERROR(fields.Read("temperature", generation.filter.temperature));
//   fields.Ignore({"metadata"});
//   RETURN_IF_ERROR(fields.ExpectAllKnown());
#ifndef TANDEM_SERVICES_ROLLOUT_OPENAI_REQUEST_FIELDS_H_
#define TANDEM_SERVICES_ROLLOUT_OPENAI_REQUEST_FIELDS_H_

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tandem::rollout::openai {

// Refers to the object, which must outlive it. Errors are INVALID_ARGUMENT with a BadField. An
// absent or null field leaves `out` unchanged.
class RequestFields {
 public:
  explicit RequestFields(const nlohmann::ordered_json& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  // Null if the field is absent or null.
  const nlohmann::ordered_json* Find(const std::string& name);

  absl::Status Read(const std::string& name, double& out);
  absl::Status Read(const std::string& name, int64_t& out);
  absl::Status Read(const std::string& name, int32_t& out);
  absl::Status Read(const std::string& name, bool& out);
  absl::Status Read(const std::string& name, std::string& out);
  template <typename T>
  absl::Status Read(const std::string& name, std::optional<T>& out) {
    T value{};
    if (Find(name) == nullptr) return absl::OkStatus();
    const absl::Status status = Read(name, value);
    if (status.ok()) out = std::move(value);
    return status;
  }
  // Reads a string or a list of strings.
  absl::Status ReadStrings(const std::string& name, std::vector<std::string>& out);
  absl::Status ReadIds(const std::string& name, std::vector<int32_t>& out);

  // Accepts a field only with a value that changes nothing: one of `neutral`, or empty.
  absl::Status ExpectNeutral(const std::string& name,
                             std::initializer_list<nlohmann::ordered_json> neutral);
  // Accepts fields that do not affect generation.
  void Ignore(std::initializer_list<const char*> names);

  // Call after all other methods.
  absl::Status ExpectAllKnown() const;

  absl::Status Error(const std::string& name, absl::string_view expected) const;

 private:
  const nlohmann::ordered_json& object_;
  const std::string prefix_;
  std::set<std::string> known_;
};

// Reads a list of ids; `field` is its name for errors. Leaves range checks to the engine.
absl::Status ReadIdList(const nlohmann::ordered_json& list, const std::string& field,
                        std::vector<int32_t>& out);

// "the string \"ab\"", "an array".
std::string DescribeValue(const nlohmann::ordered_json& value);

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_REQUEST_FIELDS_H_
