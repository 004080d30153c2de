#include "common/rpc/enum_check.h"

#include <google/protobuf/descriptor.h>

#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"

namespace tandem::rpc {
namespace {

using MessageType = google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Whether messages of the type can hold an enum, at any depth; `seen` stops recursion.
bool HoldsEnums(const MessageType& type, std::set<const MessageType*>& seen) {
  if (!seen.insert(&type).second) return false;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) return true;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
        HoldsEnums(*field.message_type(), seen)) {
      return true;
    }
  }
  return false;
}

std::string NamesOf(const EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) names.push_back(type.value(i)->name());
  return absl::StrJoin(names, ", ");
}

absl::Status CheckValue(const EnumDescriptor& type, int value, const std::string& place) {
  if (type.FindValueByNumber(value) != nullptr) return absl::OkStatus();
  return InvalidField(place, absl::StrCat("expected one of ", NamesOf(type), "; found ", value));
}

}  // namespace

absl::Status CheckEnums(const Message& message, absl::string_view place) {
  const MessageType& type = *message.GetDescriptor();
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor* const field = type.field(i);
    const bool is_enum = field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM;
    if (!is_enum && field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const bool is_empty = field->is_repeated() ? reflection.FieldSize(message, field) == 0
                                               : !is_enum && !reflection.HasField(message, field);
    if (is_empty) continue;
    std::set<const MessageType*> seen;
    if (!is_enum && !HoldsEnums(*field->message_type(), seen)) continue;
    const std::string name = absl::StrCat(place, place.empty() ? "" : ".", field->name());
    if (!field->is_repeated()) {
      RETURN_IF_ERROR(
          is_enum ? CheckValue(*field->enum_type(), reflection.GetEnumValue(message, field), name)
                  : CheckEnums(reflection.GetMessage(message, field), name));
      continue;
    }
    for (int k = 0; k < reflection.FieldSize(message, field); ++k) {
      const std::string at = absl::StrCat(name, "[", k, "]");
      RETURN_IF_ERROR(is_enum ? CheckValue(*field->enum_type(),
                                           reflection.GetRepeatedEnumValue(message, field, k), at)
                              : CheckEnums(reflection.GetRepeatedMessage(message, field, k), at));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAnswerEnums(const Message& response) {
  const absl::Status status = CheckEnums(response);
  if (status.ok()) return status;
  return absl::InternalError(absl::StrCat("invalid response: ", status.message(),
                                          "; does the other side run another version?"));
}

}  // namespace tandem::rpc
