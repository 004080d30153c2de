#include "services/rollout/ranks/rank_group.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/comm/choose_group.h"
#include "common/comm/run_with_deadline.h"
#include "common/status/status_macros.h"

namespace tandem::rollout {
namespace {

// A broadcast needs a size that every rank knows. So an order goes out in a frame of this size,
// which most fit into; the frame of a longer one says how much follows in a second broadcast.
constexpr int64_t kFrameBytes = 4096;
constexpr int64_t kMaxOrderBytes = int64_t{1} << 30;

// A rank's status in Agree(): a code, the length of a message, the message.
constexpr int64_t kAnswerBytes = 512;
constexpr int64_t kAnswerText = kAnswerBytes - 2 * static_cast<int64_t>(sizeof(int32_t));

absl::Status Broadcast(comm::ProcessGroup& group, at::Tensor tensor, absl::string_view tag) {
  ASSIGN_OR_RETURN(auto work, group.Broadcast(std::move(tensor), 0, tag));
  return work->Wait();
}

absl::StatusOr<std::unique_ptr<comm::ProcessGroup>> JoinOne(const RankGroupOptions& options,
                                                            const char* name, c10::Device device) {
  comm::GroupOptions group;
  group.name = name;
  group.rank = options.rank;
  group.size = options.size;
  group.rendezvous = options.rendezvous;
  group.rendezvous.prefix = absl::StrCat(options.rendezvous.prefix, "/", name);
  group.timeout = options.join_timeout;
  group.cancel = options.cancel;
  ASSIGN_OR_RETURN(auto joined, comm::CreateProcessGroup(group, device, options.shared_memory));
  joined->SetTimeout(options.timeout);
  return joined;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankGroup>> RankGroup::Join(const RankGroupOptions& options) {
  std::unique_ptr<RankGroup> ranks(new RankGroup(options.timeout));
  ASSIGN_OR_RETURN(ranks->orders_, JoinOne(options, "replica", c10::Device(c10::kCPU)));
  if (options.device.is_cpu()) return ranks;
  try {
    const c10::DeviceGuard guard(options.device);  // whose communicator is made
    ASSIGN_OR_RETURN(ranks->compute_, JoinOne(options, "tensor_parallel", options.device));
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("rank ", options.rank, " of the replica on ",
                                               options.device.str(), ": ",
                                               comm::FirstLine(error.what())));
  }
  return ranks;
}

absl::Status RankGroup::Send(v1::RankOrder& order) {
  order.set_number(number_++);
  const int64_t size = static_cast<int64_t>(order.ByteSizeLong());
  constexpr int64_t kHeader = sizeof(int64_t);
  const int64_t total = std::max(kFrameBytes, kHeader + size);
  at::Tensor bytes = at::empty({total}, at::kByte);
  auto* const out = static_cast<uint8_t*>(bytes.data_ptr());
  std::memcpy(out, &size, kHeader);
  if (!order.SerializeToArray(out + kHeader, static_cast<int>(size))) {
    return absl::InternalError("cannot serialize an order");
  }
  std::fill(out + kHeader + size, out + total, 0);
  RETURN_IF_ERROR(Broadcast(*orders_, bytes.narrow(0, 0, kFrameBytes), "order"));
  if (total == kFrameBytes) return absl::OkStatus();
  return Broadcast(*orders_, bytes.narrow(0, kFrameBytes, total - kFrameBytes), "rest of an order");
}

absl::Status RankGroup::Receive(v1::RankOrder& order) {
  constexpr int64_t kHeader = sizeof(int64_t);
  at::Tensor frame = at::empty({kFrameBytes}, at::kByte);
  RETURN_IF_ERROR(Broadcast(*orders_, frame, "order"));
  int64_t size = 0;
  std::memcpy(&size, frame.data_ptr(), kHeader);
  if (size < 0 || size > kMaxOrderBytes) {
    return absl::InternalError(
        absl::StrCat("received an order of ", size, " bytes; run the same release on all ranks"));
  }
  std::string text(static_cast<const char*>(frame.data_ptr()) + kHeader,
                   static_cast<size_t>(std::min(size, kFrameBytes - kHeader)));
  if (const int64_t left = kHeader + size - kFrameBytes; left > 0) {
    at::Tensor rest = at::empty({left}, at::kByte);
    RETURN_IF_ERROR(Broadcast(*orders_, rest, "rest of an order"));
    text.append(static_cast<const char*>(rest.data_ptr()), static_cast<size_t>(left));
  }
  order.Clear();
  if (!order.ParseFromString(text)) {
    return absl::InternalError(absl::StrCat("order ", number_, " cannot be parsed"));
  }
  if (order.number() != number_) {
    return absl::InternalError(absl::StrCat("order ", order.number(), " came, expected ", number_));
  }
  ++number_;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<absl::Status>> RankGroup::Agree(const absl::Status& own) {
  at::Tensor mine = at::zeros({kAnswerBytes}, at::kByte);
  const int32_t code = static_cast<int32_t>(own.code());
  const auto text = static_cast<int32_t>(
      std::min<int64_t>(kAnswerText, static_cast<int64_t>(own.message().size())));
  auto* const out = static_cast<uint8_t*>(mine.data_ptr());
  std::memcpy(out, &code, sizeof(code));
  std::memcpy(out + sizeof(code), &text, sizeof(text));
  std::copy_n(own.message().begin(), text, out + 2 * sizeof(code));
  at::Tensor all = at::empty({size() * kAnswerBytes}, at::kByte);
  ASSIGN_OR_RETURN(auto work, orders_->AllGather(all, mine, "answers"));
  RETURN_IF_ERROR(work->Wait());
  std::vector<absl::Status> answers;
  for (int rank = 0; rank < size(); ++rank) {
    const uint8_t* const in =
        static_cast<const uint8_t*>(all.const_data_ptr()) + rank * kAnswerBytes;
    int32_t found = 0;
    int32_t length = 0;
    std::memcpy(&found, in, sizeof(found));
    std::memcpy(&length, in + sizeof(found), sizeof(length));
    if (length < 0 || length > kAnswerText) {
      return absl::InternalError(absl::StrCat("rank ", rank, " answers ", length, " bytes"));
    }
    answers.emplace_back(static_cast<absl::StatusCode>(found),
                         absl::string_view(reinterpret_cast<const char*>(in + 2 * sizeof(found)),
                                           static_cast<size_t>(length)));
  }
  return answers;
}

absl::Status RankGroup::status() const {
  RETURN_IF_ERROR(orders_->status());
  return compute_ == nullptr ? absl::OkStatus() : compute_->status();
}

void RankGroup::Abort(absl::string_view reason) {
  orders_->Abort(reason);
  if (compute_ != nullptr) compute_->Abort(reason);
}

}  // namespace tandem::rollout
