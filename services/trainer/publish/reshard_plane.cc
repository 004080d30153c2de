#include "services/trainer/publish/reshard_plane.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "common/weights/receive_table.h"

namespace tandem::trainer {
namespace {

weights::TensorEntry PartOf(weights::TensorEntry tensor, const weights::LogicalTensor& logical,
                            const weights::TensorBox& box) {
  if (box.rows == logical.rows && box.columns == logical.columns) return tensor;
  common::v1::TensorBox& part = *tensor.mutable_box();
  part.set_first_row(box.first_row);
  part.set_rows(box.rows);
  part.set_first_column(box.first_column);
  part.set_columns(box.columns);
  return tensor;
}

}  // namespace

absl::StatusOr<std::vector<RankTable>> MakeRankTables(const ReshardLayout& layout,
                                                      const weights::ModelLayout& rollout) {
  std::vector<RankTable> tables;
  for (int rank = 0; rank < rollout.tp(); ++rank) {
    RankTable& table = tables.emplace_back();
    table.buckets = weights::BucketsFor(layout.plan, rank);
    for (const weights::TensorBox& box : rollout.parts[rank].boxes) {
      *table.manifest.add_tensors() =
          PartOf(layout.manifest.tensors(box.tensor), rollout.tensors[box.tensor], box);
    }
    if (table.manifest.tensors_size() != layout.manifest.tensors_size()) {
      return absl::UnimplementedError(
          absl::StrCat("replica rank ", rank, " holds ", table.manifest.tensors_size(), " of ",
                       layout.manifest.tensors_size(), " tensors; a part of each is expected"));
    }
    table.manifest.set_digest(weights::ManifestDigest(table.manifest));
  }
  return tables;
}

ReshardPlane::ReshardPlane(const ReshardLayout& layout, std::vector<RankTable> tables,
                           ReshardSender* sender, comm::ProcessGroup* world,
                           absl::Duration world_timeout, bool deltas)
    : layout_(layout),
      tables_(std::move(tables)),
      sender_(sender),
      world_(world),
      deltas_(deltas),
      limit_(world, world_timeout) {
  for (const auto& tensor : layout_.manifest.tensors()) {
    model_bytes_ += weights::TensorBytes(tensor).value_or(0);
  }
  for (int rank = 1; rank < num_senders(); ++rank) links_.emplace_back(world_, rank);
  ordered_.assign(num_senders(), false);
}

absl::Status ReshardPlane::CheckReplica(int num_ranks) const {
  if (num_ranks == layout_.plan.num_receivers()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("expected ", layout_.plan.num_receivers(),
                   " ranks, as rollout.tensor_model_parallel_size says, found ", num_ranks));
}

std::string ReshardPlane::LastMessage(int rank) const {
  const weights::Message* last = nullptr;
  int count = 0;
  for (const weights::Message& message : layout_.plan.messages) {
    if (message.from != rank) continue;
    last = &message;
    ++count;
  }
  if (last == nullptr || last->pieces.empty()) return "";
  return absl::StrCat(", whose last of ", count, " buckets is from ",
                      layout_.manifest.tensors(last->pieces.front().piece.tensor).name());
}

absl::Status ReshardPlane::ReceiveReport(int rank, absl::string_view tag, v1::SendReport& report) {
  limit_.Apply();
  absl::Status status = links_[rank - 1].Receive(report, tag);
  if (!world_->status().ok()) return status;
  if (status.ok()) {
    status = absl::Status(static_cast<absl::StatusCode>(report.code()), report.message());
  }
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("trainer rank ", rank, ": ", status.message()));
}

absl::Status ReshardPlane::TellAll(const v1::PublishOrder& order) {
  for (MessageLink& link : links_) {
    RETURN_IF_ERROR(link.Send(order, "publish order"))
        << "phase " << (order.update_id().empty() ? "end" : "begin");
  }
  return absl::OkStatus();
}

absl::Status ReshardPlane::Order(const SendOrder& order) {
  v1::PublishOrder message;
  message.set_update_id(order.update_id);
  *message.mutable_rendezvous() = order.rendezvous;
  message.set_timeout_ms(
      std::max<int64_t>(1, absl::ToInt64Milliseconds(order.deadline - absl::Now())));
  message.set_delta(order.delta);
  limit_.Begin(order.deadline);
  limit_.Apply();
  RETURN_IF_ERROR(TellAll(message));
  // Each is heard before the group is joined, where all would wait for one that knows nothing of
  // it.
  absl::Status first;
  for (int rank = 1; rank < num_senders(); ++rank) {
    v1::SendReport heard;
    absl::Status status = ReceiveReport(rank, "publish order", heard);
    if (!world_->status().ok()) return status;
    // Where the answer itself is damaged, the order most likely was not.
    ordered_[rank] = heard.code() == 0;
    if (first.ok()) first = std::move(status);
  }
  return first;
}

absl::StatusOr<SendResult> ReshardPlane::Send(comm::ProcessGroup& group, const SendOrder& order,
                                              weights::PhaseTimes& times) {
  auto sent = sender_->Send(group, num_senders(), order.delta, times);
  absl::Status status = sent.status();
  if (!status.ok()) {
    group.Abort("the update failed");
    order.call_off();
  }
  const auto wait_start = weights::PhaseTimes::Clock::now();
  SendResult result;
  int64_t elements = 0;
  int64_t changed = 0;
  std::vector<weights::DigestSum> digests(layout_.manifest.tensors_size());
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
      RETURN_IF_ERROR(told) << "trainer rank " << rank << LastMessage(rank);
    }
    if (told.ok() && report.digest_lanes_size() != 2 * layout_.manifest.tensors_size()) {
      told = absl::InternalError(
          absl::StrCat("trainer rank ", rank, " reports ", report.digest_lanes_size(),
                       " digest words, expected ", 2 * layout_.manifest.tensors_size()));
    }
    if (!told.ok()) {
      if (status.ok()) {
        status = told;
        order.call_off();  // the ranks that have not reported yet
      }
      continue;
    }
    for (size_t i = 0; i < digests.size(); ++i) {
      const int lane = 2 * static_cast<int>(i);
      digests[i].Add({{report.digest_lanes(lane), report.digest_lanes(lane + 1)}});
    }
    add(report.sent_bytes(), report.elements(), report.changed_elements());
  }
  times.Worked("gather", wait_start);  // of reports: what the slowest rank is behind the leader
  RETURN_IF_ERROR(status);
  if (order.delta && elements > 0) {
    result.changed_share = static_cast<double>(changed) / static_cast<double>(elements);
  }
  result.digests = weights::MakeTensorDigests(layout_.manifest, digests);
  return result;
}

absl::Status ReshardPlane::Drain() {
  if (num_senders() == 1) return absl::OkStatus();
  for (int rank = 1; rank < num_senders(); ++rank) {
    if (!ordered_[rank]) continue;
    ordered_[rank] = false;
    v1::SendReport report;
    const absl::Status told = ReceiveReport(rank, "publish report", report);
    if (!world_->status().ok()) return told;  // else what it says is known, or of no use any more
  }
  return world_->status();
}

absl::Status ReshardPlane::End() {
  RETURN_IF_ERROR(Drain());
  limit_.Apply();
  const absl::Status told = TellAll(v1::PublishOrder());
  limit_.End();
  return told;
}

}  // namespace tandem::trainer
