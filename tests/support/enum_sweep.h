// Calls every method of a service with every enum of its request set to a number that has no name.
#ifndef TANDEM_TESTS_SUPPORT_ENUM_SWEEP_H_
#define TANDEM_TESTS_SUPPORT_ENUM_SWEEP_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/rpc/message_digest.h"
#include "common/rpc/status_conversion.h"
#include "tandem/common/v1/error.pb.h"
#include "tests/support/call_method.h"

namespace tandem::testing {

// Sets one enum after another below `message` to 77 and calls `body` with its name.
inline void ForEachUnknownEnum(google::protobuf::Message& message,
                               const std::function<void(const std::string&)>& body, int depth = 0) {
  using google::protobuf::FieldDescriptor;
  const auto& reflection = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count() && depth < 6; ++i) {
    const FieldDescriptor* const field = message.GetDescriptor()->field(i);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      if (field->is_repeated()) {
        reflection.AddEnumValue(&message, field, 77);
      } else {
        reflection.SetEnumValue(&message, field, 77);
      }
      body(field->name());
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field->is_map()) {
      ForEachUnknownEnum(field->is_repeated() ? *reflection.AddMessage(&message, field)
                                              : *reflection.MutableMessage(&message, field),
                         body, depth + 1);
    } else {
      continue;
    }
    reflection.ClearField(&message, field);
  }
}

// Each is refused with INVALID_ARGUMENT and a BadField that names it. The number of calls.
inline int ExpectUnknownEnumsAreRefused(const std::shared_ptr<grpc::Channel>& channel,
                                        const std::string& service_name) {
  const auto* const service =
      google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(service_name);
  EXPECT_NE(service, nullptr) << service_name;
  if (service == nullptr) return 0;
  int count = 0;
  for (int m = 0; m < service->method_count(); ++m) {
    const auto* const method = service->method(m);
    const std::unique_ptr<google::protobuf::Message> request(
        google::protobuf::MessageFactory::generated_factory()
            ->GetPrototype(method->input_type())
            ->New());
    ForEachUnknownEnum(*request, [&](const std::string& name) {
      ++count;
      SCOPED_TRACE(absl::StrCat(method->full_name(), ": ", request->ShortDebugString()));
      if (request->GetDescriptor()->FindFieldByName("message_digest") != nullptr) {
        rpc::SetDigest(*request);
      }
      const absl::Status status = CallMethod(channel, *method, *request);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      const auto detail = rpc::GetDetail<common::v1::BadField>(status);
      const std::string field = detail.has_value() ? detail->field() : "";
      const std::string last = field.substr(field.rfind('.') + 1);
      EXPECT_EQ(last.substr(0, last.find('[')), name) << status;
    });
  }
  return count;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_ENUM_SWEEP_H_
