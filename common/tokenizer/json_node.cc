#include "common/tokenizer/json_node.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/io/parse_json.h"
#include "common/status/status_macros.h"

namespace tandem::tokenizer {
namespace {

constexpr uintmax_t kMaxFileBytes = uintmax_t{256} << 20;

std::string WithArticle(absl::string_view type) {
  if (type == "null") return "null";
  const bool vowel = type == "object" || type == "array";
  return absl::StrCat(vowel ? "an " : "a ", type);
}

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (error || !std::filesystem::exists(status)) {
    return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  }
  if (!std::filesystem::is_regular_file(status)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a file"));
  }
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return absl::InternalError(absl::StrCat(path, ": ", error.message()));
  if (size > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", size, " bytes; at most ", kMaxFileBytes, " are read"));
  }
  std::ifstream in(path, std::ios::binary);
  std::string text(static_cast<size_t>(size), '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(text.size()))) {
    return absl::InternalError(absl::StrCat(path, ": cannot be read; check its permissions"));
  }
  return text;
}

absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  absl::StatusOr<nlohmann::json> value = io::ParseJson<nlohmann::json>(text);
  if (value.ok()) return value;
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": not valid JSON: ", value.status().message()));
}

std::string JsonNode::Place() const {
  return key_.empty() ? file_ : absl::StrCat(file_, ": ", key_);
}

absl::Status JsonNode::Error(absl::string_view message) const {
  return absl::InvalidArgumentError(absl::StrCat(Place(), ": ", message));
}

absl::Status JsonNode::Unimplemented(absl::string_view message) const {
  return absl::UnimplementedError(absl::StrCat(Place(), ": ", message));
}

absl::Status JsonNode::WrongType(absl::string_view expected) const {
  return Error(absl::StrCat("expected ", WithArticle(expected), ", found ",
                            WithArticle(value_->type_name())));
}

absl::Status JsonNode::ExpectObject() const {
  return value_->is_object() ? absl::OkStatus() : WrongType("object");
}

absl::StatusOr<JsonNode> JsonNode::Field(absl::string_view name) const {
  RETURN_IF_ERROR(ExpectObject());
  const auto it = value_->find(std::string(name));
  if (it == value_->end()) return Error(absl::StrCat("'", name, "' is missing"));
  return JsonNode(*it, file_, key_.empty() ? std::string(name) : absl::StrCat(key_, ".", name));
}

absl::StatusOr<std::optional<JsonNode>> JsonNode::Find(absl::string_view name) const {
  RETURN_IF_ERROR(ExpectObject());
  const auto it = value_->find(std::string(name));
  if (it == value_->end() || it->is_null()) return std::optional<JsonNode>();
  ASSIGN_OR_RETURN(JsonNode node, Field(name));
  return std::optional<JsonNode>(std::move(node));
}

absl::StatusOr<size_t> JsonNode::ArraySize() const {
  if (!value_->is_array()) return WrongType("array");
  return value_->size();
}

JsonNode JsonNode::At(size_t index) const {
  return JsonNode((*value_)[index], file_, absl::StrCat(key_, "[", index, "]"));
}

absl::StatusOr<std::string> JsonNode::String() const {
  if (!value_->is_string()) return WrongType("string");
  return value_->get_ref<const std::string&>();
}

absl::StatusOr<bool> JsonNode::Bool() const {
  if (!value_->is_boolean()) return WrongType("boolean");
  return value_->get<bool>();
}

absl::StatusOr<int64_t> JsonNode::Int(int64_t min, int64_t max) const {
  if (!value_->is_number_integer()) return WrongType("integer");
  const bool too_big =
      value_->is_number_unsigned() && value_->get<uint64_t>() > static_cast<uint64_t>(max);
  if (too_big || value_->get<int64_t>() < min || value_->get<int64_t>() > max) {
    return Error(
        absl::StrCat("expected an integer from ", min, " to ", max, ", found ", value_->dump()));
  }
  return value_->get<int64_t>();
}

absl::StatusOr<std::string> JsonNode::StringOr(absl::string_view name,
                                               absl::string_view otherwise) const {
  ASSIGN_OR_RETURN(const std::optional<JsonNode> node, Find(name));
  if (!node.has_value()) return std::string(otherwise);
  return node->String();
}

absl::StatusOr<bool> JsonNode::BoolOr(absl::string_view name, bool otherwise) const {
  ASSIGN_OR_RETURN(const std::optional<JsonNode> node, Find(name));
  if (!node.has_value()) return otherwise;
  return node->Bool();
}

}  // namespace tandem::tokenizer
