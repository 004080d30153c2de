#include "common/model/families/family_check.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/model/families/row_value.h"
#include "nlohmann/json.hpp"

namespace tandem::model {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Lists whose elements are no values.
bool IsNameList(const FieldDescriptor& field) {
  return field.name() == "ignored_tensors" || field.name() == "optional_prefixes" ||
         field.name() == "part_of";
}

}  // namespace

bool FamilyChecker::IsSet(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  return field.is_repeated() ? reflection.FieldSize(message, &field) > 0
                             : reflection.HasField(message, &field);
}

void FamilyChecker::CheckRow(const v1::FamilyRow& row, const std::string& path) {
  if (row.architecture().empty()) Add(path, "architecture", "expected the name of one");
  for (const auto& [key, value] : {std::pair("when", row.when()), std::pair("is", row.is()),
                                   std::pair("absent", row.absent())}) {
    if (!value.empty()) Add(path, key, "only a variant has it");
  }
  CheckParts(row, path);
  for (int i = 0; i < row.variants_size(); ++i) {
    CheckVariant(row.variants(i), absl::StrCat(path, ".variants[", i, "]"));
  }
}

void FamilyChecker::CheckVariant(const v1::FamilyRow& row, const std::string& path) {
  if (row.when().empty()) Add(path, "when", "expected a key of config.json");
  for (const char* key : {"architecture", "model_type", "like", "variants"}) {
    if (IsSet(row, *row.GetDescriptor()->FindFieldByName(key))) {
      Add(path, key, "a variant has none");
    }
  }
  for (const auto& [key, json] : {std::pair("is", row.is()), std::pair("absent", row.absent())}) {
    if (!json.empty() && !nlohmann::json::accept(json)) {
      Add(path, key, absl::StrCat("expected JSON, found ", json));
    }
  }
  CheckParts(row, path);
}

void FamilyChecker::CheckParts(const v1::FamilyRow& row, const std::string& path) {
  CheckValues(row, path);
  if (!row.rope_parameters().empty()) {
    const auto parsed =
        nlohmann::json::parse(row.rope_parameters(), nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_object()) Add(path, "rope_parameters", "expected an object in JSON");
  }
  for (int i = 0; i < row.require_size(); ++i) {
    const v1::KeyRequirement& require = row.require(i);
    const std::string at = absl::StrCat(path, ".require[", i, "]");
    if (require.key().empty()) Add(at, "key", "expected a key of config.json");
    if (require.values().empty()) Add(at, "values", "expected what is supported");
    for (const std::string& value : require.values()) {
      if (!IsRowConstant(value) && !nlohmann::json::accept(value)) {
        Add(at, "values", absl::StrCat("expected JSON or a constant, found ", value));
      }
    }
  }
  for (int i = 0; i < row.layer_constants_size(); ++i) {
    const std::string at = absl::StrCat(path, ".layer_constants[", i, "]");
    if (row.layer_constants(i).tensor().empty()) Add(at, "tensor", "expected a tensor's name");
    if (!std::isfinite(row.layer_constants(i).value()))
      Add(at, "value", "expected a finite number");
  }
  CheckWeights(row.weights(), absl::StrCat(path, ".weights"));
  CheckWeights(row.layer_weights(), absl::StrCat(path, ".layer_weights"));
}

void FamilyChecker::CheckValues(const Message& message, const std::string& path) {
  const Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (is_message && !field->is_repeated()) {
      CheckValues(reflection.GetMessage(message, field), absl::StrCat(path, ".", field->name()));
    }
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_STRING || !field->is_repeated() ||
        IsNameList(*field)) {
      continue;
    }
    RowValue value;
    for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
      *value.Add() = reflection.GetRepeatedString(message, field, i);
    }
    const std::string problem = CheckRowValue(value);
    if (!problem.empty()) Add(path, field->name(), problem);
  }
}

void FamilyChecker::CheckWeights(
    const google::protobuf::RepeatedPtrField<v1::StoredWeight>& weights, const std::string& path) {
  for (int i = 0; i < weights.size(); ++i) {
    const std::string at = absl::StrCat(path, "[", i, "]");
    if (weights[i].name().empty()) Add(at, "name", "expected a parameter's name");
    if (weights[i].tensor().empty()) Add(at, "tensor", "expected a tensor's name");
    const bool is_fused = weights[i].fusion() != v1::FUSION_UNSPECIFIED;
    if ((weights[i].name_size() > 1) != is_fused) {
      Add(at, "fusion", "goes with two or more names, and they with it");
    }
  }
}

void FamilyChecker::Add(const std::string& path, const std::string& key,
                        const std::string& problem) {
  const std::string full = key.empty() ? path : absl::StrCat(path, ".", key);
  // The place of the key, or else of the row's first one.
  auto place = places_.find(full);
  if (place == places_.end()) place = places_.lower_bound(path + ".");
  const bool found = place != places_.end() && absl::StartsWith(place->first, path);
  errors_.push_back(absl::StrCat(found ? place->second : name_, ": ", full, ": ", problem));
}

}  // namespace tandem::model
