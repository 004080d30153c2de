#include "services/trainer/publish/reshard_plane.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/status/status_macros.h"
#include "common/weights/receive_table.h"
#include "services/trainer/publish/group_messages.h"

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

absl::Status ReshardPlane::ReceiveReport(int rank, v1::SendReport& report) {
  limit_.Apply();
  return ReceiveMessage(*world_, rank, report, "publish report");
}

absl::Status ReshardPlane::TellAll(const v1::PublishOrder& order) {
  for (int rank = 1; rank < num_senders(); ++rank) {
    RETURN_IF_ERROR(SendMessage(*world_, rank, order, "publish order"))
        << "phase " << (order.end() ? "end" : "begin");
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
  ordered_ = true;
  limit_.Begin(order.deadline);
  limit_.Apply();
  return TellAll(message);
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
  ordered_ = false;
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
    RETURN_IF_ERROR(ReceiveReport(rank, report)) << "trainer rank " << rank << LastMessage(rank);
    const auto code = static_cast<absl::StatusCode>(report.code());
    if (code != absl::StatusCode::kOk) {
      if (status.ok()) {
        status = absl::Status(code, absl::StrCat("trainer rank ", rank, ": ", report.message()));
        order.call_off();  // the ranks that have not reported yet
      }
      continue;
    }
    if (report.digest_lanes_size() != 2 * layout_.manifest.tensors_size()) {
      return absl::InternalError(
          absl::StrCat("trainer rank ", rank, " reports ", report.digest_lanes_size(),
                       " digest words, expected ", 2 * layout_.manifest.tensors_size()));
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
  for (int rank = 1; ordered_ && rank < num_senders(); ++rank) {
    v1::SendReport report;
    RETURN_IF_ERROR(ReceiveReport(rank, report));
  }
  ordered_ = false;
  return num_senders() > 1 ? world_->status() : absl::OkStatus();
}

absl::Status ReshardPlane::End() {
  RETURN_IF_ERROR(Drain());
  v1::PublishOrder order;
  order.set_end(true);
  limit_.Apply();
  const absl::Status told = TellAll(order);
  limit_.End();
  return told;
}

}  // namespace tandem::trainer
