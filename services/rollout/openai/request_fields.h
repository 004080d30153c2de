// RequestFields: typed reading of a request's JSON object that knows which fields it was asked for,
// so that one which nobody knows is an error and not ignored.
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

// Refers to the object, which outlives it. Errors are INVALID_ARGUMENT with a BadField. What is
// absent or null leaves `out` as it is.
class RequestFields {
 public:
  explicit RequestFields(const nlohmann::ordered_json& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  // Null where it is absent or null.
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
  // A string or a list of them.
  absl::Status ReadStrings(const std::string& name, std::vector<std::string>& out);
  absl::Status ReadIds(const std::string& name, std::vector<int32_t>& out);

  // A field that this server understands only where it changes nothing: equal to one of these, or
  // empty.
  absl::Status ExpectNeutral(const std::string& name,
                             std::initializer_list<nlohmann::ordered_json> neutral);
  // Fields that do not matter to what is generated.
  void Ignore(std::initializer_list<const char*> names);

  // After everything else.
  absl::Status ExpectAllKnown() const;

  absl::Status Error(const std::string& name, absl::string_view expected) const;

 private:
  const nlohmann::ordered_json& object_;
  const std::string prefix_;
  std::set<std::string> known_;
};

// Ids of a list; `field` names it. Negative and large ones are left to the engine to refuse.
absl::Status ReadIdList(const nlohmann::ordered_json& list, const std::string& field,
                        std::vector<int32_t>& out);

// "the string \"ab\"", "an array".
std::string DescribeValue(const nlohmann::ordered_json& value);

}  // namespace tandem::rollout::openai

#endif  // TANDEM_SERVICES_ROLLOUT_OPENAI_REQUEST_FIELDS_H_
