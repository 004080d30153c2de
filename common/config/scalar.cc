#include "common/config/scalar.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/config/nearest.h"
#include "common/config/yaml_json.h"
#include "common/text/utf8.h"
#include "tandem/config/v1/run_config.pb.h"

namespace tandem::config {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// The file's text, shortened for a message.
std::string Found(const YAML::Node& node) {
  if (node.IsNull()) return "nothing";
  if (node.IsSequence()) return absl::StrFormat("a list of %d", node.size());
  if (node.IsMap()) return "a section of keys";
  constexpr size_t kShown = 60;
  const std::string text = node.Scalar();
  return absl::StrCat("\"", absl::CEscape(text.substr(0, kShown)),
                      text.size() > kShown ? "..." : "", "\"");
}

// yaml-cpp tags quoted text "!" and plain text "?".
bool IsPlain(const YAML::Node& node) { return node.IsScalar() && node.Tag() != "!"; }

std::string Expected(absl::string_view what, const YAML::Node& node) {
  std::string out = absl::StrCat("expected ", what, ", found ", Found(node));
  if (node.IsScalar() && !IsPlain(node)) absl::StrAppend(&out, " in quotes");
  return out;
}

template <typename Int>
std::string ReadInteger(const YAML::Node& node, Int* value) {
  const std::string text = node.IsScalar() ? node.Scalar() : "";
  if (IsPlain(node) && absl::SimpleAtoi(text, value)) return "";
  const absl::string_view digits = absl::StripPrefix(absl::StripPrefix(text, "-"), "+");
  if (IsPlain(node) && !digits.empty() &&
      digits.find_first_not_of("0123456789") == absl::string_view::npos) {
    return Expected(absl::StrCat("an integer from ", std::numeric_limits<Int>::min(), " to ",
                                 std::numeric_limits<Int>::max()),
                    node);
  }
  return Expected("an integer", node);
}

std::string ReadNumber(const YAML::Node& node, double* value) {
  if (!IsPlain(node) || !absl::SimpleAtod(node.Scalar(), value)) return Expected("a number", node);
  if (!std::isfinite(*value)) return Expected("a finite number", node);
  return "";
}

std::string ReadBool(const YAML::Node& node, bool* value) {
  const std::string text = IsPlain(node) ? absl::AsciiStrToLower(node.Scalar()) : "";
  if (text == "true" || text == "yes" || text == "on") {
    *value = true;
  } else if (text == "false" || text == "no" || text == "off") {
    *value = false;
  } else {
    return Expected("true or false", node);
  }
  return "";
}

// verl's name of a value that has another one here.
std::string OwnName(const EnumDescriptor& type, const std::string& name) {
  if (&type == v1::PolicyLossMode_descriptor() && name == "geo_mean") return "gmpo";
  return name;
}

std::string ReadEnum(const YAML::Node& node, const EnumDescriptor& type,
                     const EnumValueDescriptor** value) {
  if (node.IsScalar()) {
    const std::string text = OwnName(type, absl::StrReplaceAll(absl::AsciiStrToLower(node.Scalar()),
                                                               {{"-", "_"}, {"+", "_plus"}}));
    for (int i = 0; i < type.value_count(); ++i) {
      if (type.value(i)->number() != 0 && EnumValueName(*type.value(i)) == text) {
        *value = type.value(i);
        return "";
      }
    }
  }
  const std::vector<std::string> names = EnumValueNames(type);
  const std::string nearest = node.IsScalar() ? Nearest(node.Scalar(), names) : "";
  return absl::StrCat("expected ", names.size() == 1 ? "" : "one of ", absl::StrJoin(names, ", "),
                      ", found ", Found(node),
                      nearest.empty() ? "" : absl::StrCat("; did you mean '", nearest, "'?"));
}

// [fd77::1] without quotes is a list of one to YAML.
bool LooksLikeAddress(const YAML::Node& node) {
  return node.IsSequence() && node.size() == 1 && node[0].IsScalar() &&
         absl::StrContains(node[0].Scalar(), "::");
}

std::string ReadString(const YAML::Node& node, std::string* value) {
  if (node.IsNull()) return "";  // `system_prompt:` and `system_prompt: null` are the empty text
  if (LooksLikeAddress(node)) {
    return absl::StrCat(Expected("text", node),
                        "; an address such as \"[::1]:5000\" needs the quotes");
  }
  if (!node.IsScalar()) return Expected("text", node);
  *value = node.Scalar();
  // Proto strings must be UTF-8, and so must messages with them.
  return text::IsUtf8(*value) ? "" : "expected UTF-8, found other bytes";
}

// Text that is a JSON object, which may be stated as a mapping too.
bool IsJson(const FieldDescriptor& field) {
  return &field == v1::DataConfig::descriptor()->FindFieldByNumber(
                       v1::DataConfig::kChatTemplateKwargsFieldNumber);
}

}  // namespace

std::string EnumValueName(const EnumValueDescriptor& value) {
  // The prefix is that of the unspecified value.
  const std::string& zero = value.type()->value(0)->name();
  const absl::string_view prefix = absl::StripSuffix(zero, "UNSPECIFIED");
  return absl::AsciiStrToLower(absl::StripPrefix(value.name(), prefix));
}

std::vector<std::string> EnumValueNames(const EnumDescriptor& type) {
  std::vector<std::string> out;
  for (int i = 0; i < type.value_count(); ++i) {
    if (type.value(i)->number() != 0) out.push_back(EnumValueName(*type.value(i)));
  }
  return out;
}

std::string SetScalar(const YAML::Node& node, const FieldDescriptor& field, Message* message) {
  const Reflection& reflection = *message->GetReflection();
  const bool add = field.is_repeated();
  std::string problem;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64: {
      int64_t value = 0;
      problem = ReadInteger(node, &value);
      if (!problem.empty()) return problem;
      add ? reflection.AddInt64(message, &field, value)
          : reflection.SetInt64(message, &field, value);
      return "";
    }
    case FieldDescriptor::CPPTYPE_UINT64: {
      uint64_t value = 0;
      problem = ReadInteger(node, &value);
      if (!problem.empty()) return problem;
      add ? reflection.AddUInt64(message, &field, value)
          : reflection.SetUInt64(message, &field, value);
      return "";
    }
    case FieldDescriptor::CPPTYPE_INT32: {
      int32_t value = 0;
      problem = ReadInteger(node, &value);
      if (!problem.empty()) return problem;
      add ? reflection.AddInt32(message, &field, value)
          : reflection.SetInt32(message, &field, value);
      return "";
    }
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      double value = 0;
      problem = ReadNumber(node, &value);
      if (!problem.empty()) return problem;
      add ? reflection.AddDouble(message, &field, value)
          : reflection.SetDouble(message, &field, value);
      return "";
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      bool value = false;
      problem = ReadBool(node, &value);
      if (!problem.empty()) return problem;
      add ? reflection.AddBool(message, &field, value) : reflection.SetBool(message, &field, value);
      return "";
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const EnumValueDescriptor* value = nullptr;
      problem = ReadEnum(node, *field.enum_type(), &value);
      if (!problem.empty()) return problem;
      add ? reflection.AddEnum(message, &field, value) : reflection.SetEnum(message, &field, value);
      return "";
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string value;
      problem = node.IsMap() && IsJson(field) ? YamlToJson(node, &value) : ReadString(node, &value);
      if (!problem.empty()) return problem;
      add ? reflection.AddString(message, &field, value)
          : reflection.SetString(message, &field, value);
      return "";
    }
    default:
      return absl::StrCat("fields of type ", field.cpp_type_name(), " cannot be configured");
  }
}

}  // namespace tandem::config
