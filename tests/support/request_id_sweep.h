// Calls every method of a service whose request carries a request_id with one that is too long.
#ifndef TANDEM_TESTS_SUPPORT_REQUEST_ID_SWEEP_H_
#define TANDEM_TESTS_SUPPORT_REQUEST_ID_SWEEP_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/rpc/message_digest.h"
#include "common/rpc/request_id.h"
#include "common/rpc/status_conversion.h"
#include "tandem/common/v1/error.pb.h"
#include "tests/support/call_method.h"

namespace tandem::testing {

// Sets one request_id (or item of request_ids) after another below `message` to a text that is one
// byte too long, and calls `body` with the field's place.
inline void ForEachLongRequestId(google::protobuf::Message& message, const std::string& place,
                                 const std::function<void(const std::string&)>& body,
                                 int depth = 0) {
  using google::protobuf::FieldDescriptor;
  const std::string id(rpc::kMaxRequestIdBytes + 1, 'i');
  const auto& reflection = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count() && depth < 6; ++i) {
    const FieldDescriptor* const field = message.GetDescriptor()->field(i);
    const std::string name = absl::StrCat(place, field->name());
    if (field->name() == "request_id") {
      reflection.SetString(&message, field, id);
      body(name);
    } else if (field->name() == "request_ids") {
      reflection.AddString(&message, field, "first");
      reflection.AddString(&message, field, id);
      body(name + "[1]");
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field->is_repeated()) {
      ForEachLongRequestId(*reflection.MutableMessage(&message, field), name + ".", body,
                           depth + 1);
    } else {
      continue;
    }
    reflection.ClearField(&message, field);
  }
}

// Each is refused with INVALID_ARGUMENT and a BadField that names it. The number of calls.
inline int ExpectLongRequestIdsAreRefused(const std::shared_ptr<grpc::Channel>& channel,
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
    ForEachLongRequestId(*request, "", [&](const std::string& place) {
      ++count;
      SCOPED_TRACE(method->full_name());
      if (request->GetDescriptor()->FindFieldByName("message_digest") != nullptr) {
        rpc::SetDigest(*request);
      }
      const absl::Status status = CallMethod(channel, *method, *request);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      const auto detail = rpc::GetDetail<common::v1::BadField>(status);
      EXPECT_EQ(detail.has_value() ? detail->field() : "", place) << status;
    });
  }
  return count;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_REQUEST_ID_SWEEP_H_
