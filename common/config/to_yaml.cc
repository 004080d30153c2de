#include "common/config/to_yaml.h"

#include <google/protobuf/message.h>

#include <charconv>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/config/scalar.h"

namespace tandem::config {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

std::string Number(double value) {
  char buffer[32];  // the shortest text that reads back as the same number
  const auto result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return std::string(buffer, result.ptr);
}

// Always quotes text, which avoids every rule about plain text.
std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      absl::StrAppendFormat(&out, "\\x%02x", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

// Element `index` of a repeated field, or the field itself if index is -1.
std::string Value(const Message& message, const FieldDescriptor& field, int index) {
  const Reflection& r = *message.GetReflection();
  const bool one = index < 0;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT64:
      return absl::StrCat(one ? r.GetInt64(message, &field)
                              : r.GetRepeatedInt64(message, &field, index));
    case FieldDescriptor::CPPTYPE_UINT64:
      return absl::StrCat(one ? r.GetUInt64(message, &field)
                              : r.GetRepeatedUInt64(message, &field, index));
    case FieldDescriptor::CPPTYPE_INT32:
      return absl::StrCat(one ? r.GetInt32(message, &field)
                              : r.GetRepeatedInt32(message, &field, index));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Number(one ? r.GetDouble(message, &field)
                        : r.GetRepeatedDouble(message, &field, index));
    case FieldDescriptor::CPPTYPE_BOOL:
      return (one ? r.GetBool(message, &field) : r.GetRepeatedBool(message, &field, index))
                 ? "true"
                 : "false";
    case FieldDescriptor::CPPTYPE_ENUM:
      return EnumValueName(
          *(one ? r.GetEnum(message, &field) : r.GetRepeatedEnum(message, &field, index)));
    default:
      return Quoted(one ? r.GetString(message, &field)
                        : r.GetRepeatedString(message, &field, index));
  }
}

// An element of a list of sections, with the sections within it, on one line. Leaves out what is not set, which has no other
// default.
std::string InlineSection(const Message& message) {
  std::vector<std::string> entries;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    if (!message.GetReflection()->HasField(message, &field)) continue;
    const bool is_section = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    entries.push_back(absl::StrCat(
        field.name(), ": ",
        is_section ? InlineSection(message.GetReflection()->GetMessage(message, &field))
                   : Value(message, field, -1)));
  }
  return absl::StrCat("{", absl::StrJoin(entries, ", "), "}");
}

bool IsUnset(const Message& message, const FieldDescriptor& field) {
  const Reflection& r = *message.GetReflection();
  if (field.is_repeated()) return false;
  if (field.has_presence()) return !r.HasField(message, &field);
  return field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM && r.GetEnumValue(message, &field) == 0;
}

void WriteSection(const Message& message, int indent, std::string* out) {
  const Reflection& r = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor& field = *message.GetDescriptor()->field(i);
    if (IsUnset(message, field)) continue;
    absl::StrAppend(out, std::string(indent, ' '), field.name(), ":");
    if (field.is_repeated()) {
      std::vector<std::string> elements;
      for (int j = 0; j < r.FieldSize(message, &field); ++j) {
        elements.push_back(field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE
                               ? InlineSection(r.GetRepeatedMessage(message, &field, j))
                               : Value(message, field, j));
      }
      absl::StrAppend(out, " [", absl::StrJoin(elements, ", "), "]\n");
    } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      absl::StrAppend(out, "\n");
      WriteSection(r.GetMessage(message, &field), indent + 2, out);
    } else {
      absl::StrAppend(out, " ", Value(message, field, -1), "\n");
    }
  }
}

}  // namespace

std::string ToYaml(const v1::RunConfig& config) {
  std::string out;
  WriteSection(config, 0, &out);
  return out;
}

}  // namespace tandem::config
