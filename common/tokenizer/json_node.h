// Reads JSON of any shape: each access that fails names the file and the key.
//
//   ASSIGN_OR_RETURN(JsonNode model, root.Field("model"));
//   ASSIGN_OR_RETURN(bool fuse, model.BoolOr("fuse_unk", false));
//   // InvalidArgument: tokenizer.json: model.fuse_unk: expected a boolean, found a string
//
// A JsonNode is a view: the document must outlive it.
#ifndef TANDEM_COMMON_TOKENIZER_JSON_NODE_H_
#define TANDEM_COMMON_TOKENIZER_JSON_NODE_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tandem::tokenizer {

// Reads and parses a file. NotFound when it does not exist, InvalidArgument with the place when it
// is not JSON.
absl::StatusOr<nlohmann::json> ReadJsonFile(const std::string& path);
// Reads a file of at most 256 MiB. NotFound when it does not exist.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, std::string file)
      : value_(&value), file_(std::move(file)) {}

  const nlohmann::json& value() const { return *value_; }
  bool is_null() const { return value_->is_null(); }

  // Members of an object. Field() fails when the member is absent; Find() returns nothing when it
  // is absent or null.
  absl::StatusOr<JsonNode> Field(absl::string_view name) const;
  absl::StatusOr<std::optional<JsonNode>> Find(absl::string_view name) const;
  // Elements of an array.
  absl::StatusOr<size_t> ArraySize() const;
  JsonNode At(size_t index) const;  // index < ArraySize()

  absl::StatusOr<std::string> String() const;
  absl::StatusOr<bool> Bool() const;
  absl::StatusOr<int64_t> Int(int64_t min, int64_t max) const;
  absl::StatusOr<std::string> StringOr(absl::string_view name, absl::string_view otherwise) const;
  absl::StatusOr<bool> BoolOr(absl::string_view name, bool otherwise) const;
  absl::Status ExpectObject() const;

  // InvalidArgument: "file: key: message".
  absl::Status Error(absl::string_view message) const;
  absl::Status Unimplemented(absl::string_view message) const;
  std::string Place() const;

 private:
  JsonNode(const nlohmann::json& value, std::string file, std::string key)
      : value_(&value), file_(std::move(file)), key_(std::move(key)) {}
  absl::Status WrongType(absl::string_view expected) const;

  const nlohmann::json* value_;
  std::string file_;
  std::string key_;
};

}  // namespace tandem::tokenizer

#endif  // TANDEM_COMMON_TOKENIZER_JSON_NODE_H_
