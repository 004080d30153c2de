// Calls a method that is known by its descriptor, with one request.
#ifndef TANDEM_TESTS_SUPPORT_CALL_METHOD_H_
#define TANDEM_TESTS_SUPPORT_CALL_METHOD_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "common/rpc/channel.h"
#include "common/rpc/status_conversion.h"

namespace tandem::testing {

// The call's status; drops the response.
inline absl::Status CallMethod(const std::shared_ptr<grpc::Channel>& channel,
                               const google::protobuf::MethodDescriptor& method,
                               const google::protobuf::Message& request) {
  const grpc::Slice slice(request.SerializeAsString());
  const grpc::ByteBuffer bytes(&slice, 1);
  grpc::ByteBuffer response;
  const auto context = rpc::MakeContext(absl::Seconds(30));
  grpc::Status result;
  absl::Notification done;
  grpc::GenericStub(channel).UnaryCall(
      context.get(), absl::StrCat("/", method.service()->full_name(), "/", method.name()), {},
      &bytes, &response, [&](grpc::Status status) {
        result = std::move(status);
        done.Notify();
      });
  done.WaitForNotification();
  return rpc::FromGrpcStatus(result);
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_CALL_METHOD_H_
