#include "services/trainer/publish/send_by_reshard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/security/sealed.h"
#include "common/status/status_macros.h"
#include "common/weights/receive_table.h"
#include "services/trainer/publish/digest_lanes.h"

namespace tandem::trainer {

SendByReshard::SendByReshard(ReshardFeeds* feeds, comm::ProcessGroup* world,
                             absl::Duration world_timeout, std::string group_secret)
    : feeds_(*feeds),
      route_(feeds->num_senders()),
      tables_(feeds),
      world_(world),
      group_secret_(std::move(group_secret)),
      limit_(world, world_timeout) {
  for (const auto& tensor : feeds_.manifest().tensors()) {
    model_bytes_ += weights::TensorBytes(tensor).value_or(0);
  }
  for (int rank = 1; rank < num_senders(); ++rank) links_.emplace_back(world_, rank);
  ordered_.assign(num_senders(), false);
}

absl::Status SendByReshard::CheckReplica(int num_ranks) {
  absl::MutexLock lock(&mu_);
  return feeds_.To({num_ranks}).status();
}

absl::StatusOr<std::vector<ReplicaTables>> SendByReshard::TablesFor(
    const std::vector<int>& replica_ranks, bool keeps_frozen) {
  absl::MutexLock lock(&mu_);
  return tables_.For(replica_ranks, keeps_frozen);
}

std::string SendByReshard::LastMessage(int rank, const FeedKey& key) {
  const auto feed = feeds_.To(key);
  if (!feed.ok()) return "";
  const weights::Message* last = nullptr;
  int count = 0;
  for (const weights::Message& message : (*feed)->layout.plan.messages) {
    if (message.from != rank) continue;
    last = &message;
    ++count;
  }
  if (last == nullptr || last->pieces.empty()) return "";
  return absl::StrCat(", whose last of ", count, " buckets is from ",
                      feeds_.manifest().tensors(last->pieces.front().piece.tensor).name());
}

absl::Status SendByReshard::ReceiveReport(int rank, absl::string_view tag, v1::SendReport& report) {
  limit_.Apply();
  absl::Status status = links_[rank - 1].Receive(report, tag);
  if (!world_->status().ok()) return status;
  if (status.ok()) {
    status = absl::Status(static_cast<absl::StatusCode>(report.code()), report.message());
  }
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("trainer rank ", rank, ": ", status.message()));
}

absl::Status SendByReshard::TellAll(const v1::PublishOrder& order) {
  for (MessageLink& link : links_) {
    RETURN_IF_ERROR(link.Send(order, "publish order"))
        << "phase " << (order.update_id().empty() ? "end" : "begin");
  }
  return absl::OkStatus();
}

absl::Status SendByReshard::Order(const SendOrder& order) {
  v1::PublishOrder message;
  message.set_update_id(order.update_id);
  *message.mutable_rendezvous() = order.rendezvous;
  if (!group_secret_.empty()) {
    message.set_sealed_secret(
        security::Seal(group_secret_, order.rendezvous.secret(), order.update_id));
    message.mutable_rendezvous()->clear_secret();
  }
  message.set_timeout_ms(
      std::max<int64_t>(1, absl::ToInt64Milliseconds(order.deadline - absl::Now())));
  message.set_delta(order.delta);
  message.set_replica_ranks(order.fleet.front());
  message.set_keeps_frozen(order.keeps_frozen);
  limit_.Begin(order.deadline);
  limit_.Apply();
  RETURN_IF_ERROR(TellAll(message));
  // Receives a report from every rank before joining the group, where all would wait for a rank
  // without the order.
  absl::Status first;
  for (int rank = 1; rank < num_senders(); ++rank) {
    v1::SendReport heard;
    absl::Status status = ReceiveReport(rank, "publish order", heard);
    if (!world_->status().ok()) return status;
    // If only the report was damaged, the order most likely was not.
    ordered_[rank] = heard.code() == 0;
    if (first.ok()) first = std::move(status);
  }
  return first;
}

absl::StatusOr<ReshardSender::Sent> SendByReshard::SendOwn(comm::ProcessGroup& group,
                                                           const FeedKey& feed, bool delta,
                                                           weights::PhaseTimes& times) {
  ASSIGN_OR_RETURN(ReshardSender* const sender, feeds_.SenderTo(feed));
  return sender->Send(group, num_senders(), delta, times);
}

absl::StatusOr<SendResult> SendByReshard::Send(comm::ProcessGroup& group, const SendOrder& order,
                                               weights::PhaseTimes& times) {
  const FeedKey feed = {order.fleet.front(), order.keeps_frozen};
  auto sent = SendOwn(group, feed, order.delta, times);
  absl::Status status = sent.status();
  if (!status.ok()) {
    group.Abort("the update failed");
    order.call_off();
  }
  const auto wait_start = weights::PhaseTimes::Clock::now();
  SendResult result;
  int64_t elements = 0;
  int64_t changed = 0;
  std::vector<weights::DigestSum> digests(feeds_.manifest().tensors_size());
  const auto add = [&](int64_t bytes, int64_t looked_at, int64_t differ) {
    result.sent_bytes += bytes;
    result.max_rank_sent_bytes = std::max(result.max_rank_sent_bytes, bytes);
    elements += looked_at;
    changed += differ;
  };
  if (sent.ok()) {
    digests = sent->digests;
    add(sent->bytes, sent->elements, sent->changed);
  }
  for (int rank = 1; rank < num_senders(); ++rank) {
    v1::SendReport report;
    ordered_[rank] = false;
    absl::Status told = ReceiveReport(rank, "publish report", report);
    if (!world_->status().ok()) {
      RETURN_IF_ERROR(told) << "trainer rank " << rank << LastMessage(rank, feed);
    }
    if (told.ok()) {
      const absl::Status added = AddLanes(report.digest_lanes(), absl::MakeSpan(digests));
      told = absl::Status(added.code(), absl::StrCat("trainer rank ", rank, " ", added.message()));
    }
    if (!told.ok()) {
      if (status.ok()) {
        status = told;
        order.call_off();  // the ranks that have not reported yet
      }
      continue;
    }
    add(report.sent_bytes(), report.elements(), report.changed_elements());
  }
  times.Worked("gather", wait_start);  // of reports: how far the slowest rank is behind the leader
  RETURN_IF_ERROR(status);
  if (order.delta && elements > 0) {
    result.changed_share = static_cast<double>(changed) / static_cast<double>(elements);
  }
  result.digests = weights::MakeTensorDigests(feeds_.manifest(), digests);
  return result;
}

absl::Status SendByReshard::Drain() {
  if (num_senders() == 1) return absl::OkStatus();
  for (int rank = 1; rank < num_senders(); ++rank) {
    if (!ordered_[rank]) continue;
    ordered_[rank] = false;
    v1::SendReport report;
    const absl::Status told = ReceiveReport(rank, "publish report", report);
    if (!world_->status().ok()) return told;  // otherwise the report is known, or no longer needed
  }
  return world_->status();
}

absl::Status SendByReshard::End() {
  RETURN_IF_ERROR(Drain());
  limit_.Apply();
  const absl::Status told = TellAll(v1::PublishOrder());
  limit_.End();
  return told;
}

}  // namespace tandem::trainer
