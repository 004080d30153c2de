#include "common/io/ordered_json.h"

#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/io/parse_json.h"

namespace tandem::io {
namespace {

using nlohmann::ordered_json;

// Objects of so few keys are searched; most are.
constexpr size_t kMaxSearchedKeys = 16;

// Builds the value whose events it gets.
class Builder : public nlohmann::json_sax<ordered_json> {
 public:
  ordered_json& value() { return value_; }
  const std::string& problem() const { return problem_; }

  bool null() override { return Add(nullptr) != nullptr; }
  bool boolean(bool value) override { return Add(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return Add(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return Add(value) != nullptr; }
  bool number_float(number_float_t value, const string_t&) override {
    return Add(value) != nullptr;
  }
  bool string(string_t& value) override { return Add(std::move(value)) != nullptr; }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return Open(ordered_json::object()); }
  bool start_array(size_t) override { return Open(ordered_json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& key) override {
    Container& object = open_.back();
    member_ = &object.keys.ValueAt(*object.value, std::move(key));
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    problem_ = JsonProblem(error);
    return false;
  }

 private:
  // An object or array that has begun. Its address is fixed until it ends: only then does the
  // container around it grow.
  struct Container {
    ordered_json* value;
    OrderedKeys keys;
  };

  ordered_json* Add(ordered_json value) {
    if (open_.empty()) {
      value_ = std::move(value);
      return &value_;
    }
    ordered_json& container = *open_.back().value;
    if (container.is_array()) {
      auto& items = container.get_ref<ordered_json::array_t&>();
      items.push_back(std::move(value));
      return &items.back();
    }
    *member_ = std::move(value);
    return member_;
  }

  bool Open(ordered_json value) {
    open_.push_back({.value = Add(std::move(value)), .keys = {}});
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  ordered_json value_;
  std::vector<Container> open_;
  ordered_json* member_ = nullptr;  // of the innermost object: the value that comes next
  std::string problem_;
};

}  // namespace

ordered_json& OrderedKeys::ValueAt(ordered_json& object, std::string key) {
  auto& members = object.get_ref<ordered_json::object_t&>();
  if (members.size() < kMaxSearchedKeys) return object[key];
  if (indices_.empty()) {
    size_t index = 0;
    for (const auto& member : members) indices_.emplace(member.first, index++);
  }
  const auto [found, is_new] = indices_.emplace(std::move(key), members.size());
  if (is_new) members.emplace_back(found->first, nullptr);
  return (members.begin() + static_cast<ptrdiff_t>(found->second))->second;
}

absl::StatusOr<ordered_json> ParseOrderedJson(absl::string_view text) {
  if (absl::Status depth = CheckJsonDepth(text); !depth.ok()) return depth;
  Builder builder;
  try {
    if (!ordered_json::sax_parse(text.begin(), text.end(), &builder)) {
      return absl::InvalidArgumentError(builder.problem());
    }
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(JsonProblem(error));
  }
  return std::move(builder.value());
}

}  // namespace tandem::io
