#include "services/trainer/publish/group_messages.h"

#include <ATen/ops/empty.h>
#include <xxhash.h>

#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/comm/guarded_words.h"
#include "common/status/status_macros.h"

namespace tandem::trainer {
namespace {

constexpr int64_t kMaxMessageBytes = int64_t{1} << 30;

// Sequence number of the message from 0, its size, the two halves of its digest.
comm::Words<4> HeaderOf(int64_t number, const void* bytes, size_t size) {
  const XXH128_hash_t digest = XXH3_128bits(bytes, size);
  return {number, static_cast<int64_t>(size), static_cast<int64_t>(digest.low64),
          static_cast<int64_t>(digest.high64)};
}

}  // namespace

absl::Status MessageLink::Send(const google::protobuf::Message& message, absl::string_view tag) {
  const std::string text = message.SerializeAsString();
  ASSIGN_OR_RETURN(
      auto sending_header,
      group_->Send(comm::GuardWords(HeaderOf(sent_, text.data(), text.size())), peer_, tag));
  RETURN_IF_ERROR(sending_header->Wait());
  ++sent_;
  if (text.empty()) return absl::OkStatus();
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  ASSIGN_OR_RETURN(auto sending, group_->Send(bytes, peer_, tag));
  return sending->Wait();
}

absl::Status MessageLink::Receive(google::protobuf::Message& message, absl::string_view tag) {
  while (true) {
    at::Tensor guarded = comm::RoomForWords<4>();
    ASSIGN_OR_RETURN(auto receiving_header, group_->Receive(guarded, peer_, tag));
    RETURN_IF_ERROR(receiving_header->Wait());
    const comm::Words<4> header = comm::ReadGuarded<4>(guarded);
    const auto [number, size, low, high] = header;
    if (number < 0 || size < 0 || size > kMaxMessageBytes) {
      return absl::InternalError(absl::StrCat(tag, ": rank ", peer_, " announces message ", number,
                                              " of ", size,
                                              " bytes; run the same release on all ranks"));
    }
    at::Tensor bytes = at::empty({size}, at::kByte);
    if (size > 0) {
      ASSIGN_OR_RETURN(auto receiving, group_->Receive(bytes, peer_, tag));
      RETURN_IF_ERROR(receiving->Wait());
    }
    if (number < received_) continue;  // a duplicate
    const int64_t expected = std::exchange(received_, number + 1);
    message.Clear();
    if (number > expected) {
      return absl::DataLossError(absl::StrCat(tag, ": rank ", peer_, " sent message ", number,
                                              ", expected ", expected,
                                              "; those in between are lost"));
    }
    if (HeaderOf(number, bytes.const_data_ptr(), size) != header ||
        !message.ParseFromArray(bytes.const_data_ptr(), static_cast<int>(size))) {
      message.Clear();
      return absl::DataLossError(absl::StrCat(tag, ": the message of rank ", peer_, ", ", size,
                                              " bytes, arrived damaged"));
    }
    return absl::OkStatus();
  }
}

}  // namespace tandem::trainer
