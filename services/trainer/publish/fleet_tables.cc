#include "services/trainer/publish/fleet_tables.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

absl::StatusOr<std::vector<weights::Manifest>> PartManifests(const weights::Manifest& whole,
                                                             const weights::ModelLayout& rollout) {
  std::vector<weights::Manifest> parts;
  for (int rank = 0; rank < rollout.tp(); ++rank) {
    weights::Manifest& part = parts.emplace_back();
    auto box = rollout.parts[rank].boxes.begin();
    for (int tensor = 0; tensor < whole.tensors_size(); ++tensor) {
      if (box != rollout.parts[rank].boxes.end() && box->tensor == tensor) {
        *part.add_tensors() = PartOf(whole.tensors(tensor), rollout.tensors[tensor], *box++);
      } else {
        // Nothing: another rank holds the expert.
        *part.add_tensors() = whole.tensors(tensor);
        part.mutable_tensors()->rbegin()->mutable_box();
      }
    }
    part.set_digest(weights::ManifestDigest(part));
  }
  return parts;
}

absl::StatusOr<const FleetTables::Hop*> FleetTables::HopOf(const std::string& path,
                                                           const Hop* before, const FeedKey& key) {
  std::unique_ptr<Hop>& known = hops_[path];
  if (known != nullptr) return known.get();
  ASSIGN_OR_RETURN(const ReshardFeeds::Feed* feed, feeds_->To(key));
  auto hop = std::make_unique<Hop>();
  hop->rollout = &feed->rollout;
  hop->tensor_bytes = feed->layout.tensor_bytes;
  hop->plan = &feed->layout.plan;
  if (before != nullptr) {
    ASSIGN_OR_RETURN(hop->relay, weights::MakeRelayPlan(*before->plan, *before->rollout,
                                                        *hop->rollout, feed->layout.Brings()));
    hop->plan = &hop->relay.hop;
    auto relayed = std::make_shared<std::vector<weights::RelayedBuckets>>();
    const int senders = before->rollout->tp();
    for (int rank = 0; rank < senders; ++rank) {
      relayed->push_back(weights::RelayedFor(hop->relay, rank, senders, hop->tensor_bytes));
    }
    hop->relayed = std::move(relayed);
  }
  ASSIGN_OR_RETURN(std::vector<weights::Manifest> manifests,
                   PartManifests(feeds_->manifest(), *hop->rollout));
  auto ranks = std::make_shared<std::vector<RankTable>>();
  for (int rank = 0; rank < key.num_ranks; ++rank) {
    ranks->push_back({std::move(manifests[rank]), weights::BucketsFor(*hop->plan, rank)});
  }
  hop->ranks = std::move(ranks);
  known = std::move(hop);
  return known.get();
}

absl::StatusOr<std::vector<ReplicaTables>> FleetTables::For(const std::vector<int>& replica_ranks,
                                                            bool keeps_frozen) {
  if (replica_ranks.empty()) return absl::InvalidArgumentError("there is no replica to feed");
  std::vector<ReplicaTables> out;
  const Hop* hop = nullptr;
  const std::string kind = keeps_frozen ? "trainable " : "";
  std::string path;
  int size = 0;
  for (const int ranks : replica_ranks) {
    if (hop == nullptr || ranks != size) {
      if (hop != nullptr && ranks > size) {
        return absl::InvalidArgumentError(absl::StrCat("replicas of ",
                                                       absl::StrJoin(replica_ranks, ", "),
                                                       " ranks: expected the larger ones first"));
      }
      const std::string before = path;
      absl::StrAppend(&path, path.empty() ? "" : ">", ranks);
      ASSIGN_OR_RETURN(hop, HopOf(kind + path, hop, {ranks, keeps_frozen}));
      size = ranks;
      if (!out.empty()) {
        out.back().relayed = hop->relayed;
        out.back().id = absl::StrCat(kind, before, ", to ", ranks);
      }
    }
    out.push_back({kind + path, hop->ranks, nullptr});
  }
  return out;
}

}  // namespace tandem::trainer
