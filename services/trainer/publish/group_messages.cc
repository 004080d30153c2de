#include "services/trainer/publish/group_messages.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::trainer {
namespace {

constexpr int64_t kMaxMessageBytes = int64_t{1} << 30;

}  // namespace

absl::Status SendMessage(comm::ProcessGroup& group, int to,
                         const google::protobuf::Message& message, absl::string_view tag) {
  const std::string text = message.SerializeAsString();
  const auto size = static_cast<int64_t>(text.size());
  const at::Tensor header = at::full({1}, size, at::kLong);
  ASSIGN_OR_RETURN(auto sending_size, group.Send(header, to, tag));
  RETURN_IF_ERROR(sending_size->Wait());
  if (size == 0) return absl::OkStatus();
  at::Tensor bytes = at::empty({size}, at::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  ASSIGN_OR_RETURN(auto sending, group.Send(bytes, to, tag));
  return sending->Wait();
}

absl::Status ReceiveMessage(comm::ProcessGroup& group, int from, google::protobuf::Message& message,
                            absl::string_view tag) {
  at::Tensor header = at::empty({1}, at::kLong);
  ASSIGN_OR_RETURN(auto receiving_size, group.Receive(header, from, tag));
  RETURN_IF_ERROR(receiving_size->Wait());
  const int64_t size = header.item<int64_t>();
  if (size < 0 || size > kMaxMessageBytes) {
    return absl::InternalError(absl::StrCat(tag, ": rank ", from, " announces ", size,
                                            " bytes; all ranks must run the same release"));
  }
  message.Clear();
  if (size == 0) return absl::OkStatus();
  at::Tensor bytes = at::empty({size}, at::kByte);
  ASSIGN_OR_RETURN(auto receiving, group.Receive(bytes, from, tag));
  RETURN_IF_ERROR(receiving->Wait());
  if (!message.ParseFromArray(bytes.const_data_ptr(), static_cast<int>(size))) {
    return absl::InternalError(absl::StrCat(tag, ": rank ", from,
                                            " sent something else; all ranks must run the same "
                                            "release"));
  }
  return absl::OkStatus();
}

}  // namespace tandem::trainer
