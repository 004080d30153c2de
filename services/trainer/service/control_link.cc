#include "services/trainer/service/control_link.h"

#include <ATen/ATen.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/comm/choose_group.h"
#include "common/status/status_macros.h"

namespace tandem::trainer {
namespace {

// A header that announces more is invalid.
constexpr int64_t kMaxMessageBytes = int64_t{1} << 32;
constexpr int64_t kHeaderWords = 6;

absl::Status Finish(comm::ProcessGroup::WorkOr work) {
  RETURN_IF_ERROR(work.status());
  return (*work)->Wait();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ControlLink>> ControlLink::Join(const comm::Rendezvous& rendezvous,
                                                               int rank, int follower,
                                                               absl::Duration timeout,
                                                               const absl::Notification* cancel) {
  comm::GroupOptions options;
  options.name = absl::StrCat("control.", follower);
  options.rank = rank == 0 ? 0 : 1;
  options.size = 2;
  options.rendezvous = rendezvous;
  options.rendezvous.prefix = absl::StrCat(rendezvous.prefix, "/", options.name);
  options.timeout = timeout;
  options.cancel = cancel;
  // Sockets whose bytes move on the waiting thread. Gloo's thread polls without a pause while it finds
  // its connection locked, and so keeps a core from the very thread that holds the lock.
  ASSIGN_OR_RETURN(std::unique_ptr<comm::ProcessGroup> group,
                   comm::CreateGroupOf("local_socket", options));
  return std::unique_ptr<ControlLink>(new ControlLink(std::move(group)));
}

absl::Status ControlLink::Send(const Message& message, absl::string_view tag) {
  const int peer = 1 - group_->rank();
  const int64_t header[kHeaderWords] = {message.kind,
                                        message.flags,
                                        static_cast<int64_t>(message.bytes.size()),
                                        static_cast<int64_t>(message.trace.trace_high),
                                        static_cast<int64_t>(message.trace.trace_low),
                                        static_cast<int64_t>(message.trace.span)};
  at::Tensor head = at::empty({kHeaderWords}, at::kLong);
  std::memcpy(head.mutable_data_ptr(), header, sizeof(header));
  RETURN_IF_ERROR(Finish(group_->Send(head, peer, tag)));
  if (message.bytes.empty()) return absl::OkStatus();
  at::Tensor body = at::empty({header[2]}, at::kByte);
  std::memcpy(body.mutable_data_ptr(), message.bytes.data(), message.bytes.size());
  return Finish(group_->Send(body, peer, tag));
}

absl::StatusOr<ControlLink::Message> ControlLink::Receive(absl::string_view tag) {
  const int peer = 1 - group_->rank();
  at::Tensor head = at::zeros({kHeaderWords}, at::kLong);
  RETURN_IF_ERROR(Finish(group_->Receive(head, peer, tag)));
  const int64_t* header = head.const_data_ptr<int64_t>();
  Message out;
  out.kind = header[0];
  out.flags = header[1];
  const int64_t size = header[2];
  out.trace = {static_cast<uint64_t>(header[3]), static_cast<uint64_t>(header[4]),
               static_cast<uint64_t>(header[5])};
  if (size < 0 || size > kMaxMessageBytes) {
    return absl::InternalError(absl::StrCat("control message of ", size,
                                            " bytes; expected at most ", kMaxMessageBytes,
                                            ": the ranks are out of step"));
  }
  if (size == 0) return out;
  at::Tensor body = at::empty({size}, at::kByte);
  RETURN_IF_ERROR(Finish(group_->Receive(body, peer, tag)));
  out.bytes.assign(static_cast<const char*>(body.const_data_ptr()), static_cast<size_t>(size));
  return out;
}

absl::Status ControlLink::SendCommand(const RankCommand& command) {
  return Send({static_cast<int64_t>(command.opcode), 0, command.payload, command.trace}, "command");
}

absl::StatusOr<RankCommand> ControlLink::ReceiveCommand() {
  ASSIGN_OR_RETURN(Message message, Receive("command"));
  return RankCommand{static_cast<Opcode>(message.kind), std::move(message.bytes), message.trace};
}

absl::Status ControlLink::SendResult(const RankResult& result) {
  const std::string text =
      result.status.ok() ? result.payload : std::string(result.status.message());
  return Send({static_cast<int64_t>(result.status.code()), result.fatal ? 1 : 0, text, {}},
              "result");
}

absl::StatusOr<RankResult> ControlLink::ReceiveResult() {
  ASSIGN_OR_RETURN(Message message, Receive("result"));
  RankResult out;
  out.fatal = message.flags != 0;
  const auto code = static_cast<absl::StatusCode>(message.kind);
  if (code == absl::StatusCode::kOk) {
    out.payload = std::move(message.bytes);
  } else {
    out.status = absl::Status(code, message.bytes);
  }
  return out;
}

}  // namespace tandem::trainer
