#include "services/trainer/publish/shard_gather_source.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "common/comm/guarded_words.h"
#include "common/comm/wait_on_host.h"
#include "common/status/status_macros.h"
#include "services/trainer/fsdp/offload_file.h"
#include "services/trainer/publish/shard_pieces.h"
#include "services/trainer/publish/wire_type.h"

namespace tandem::trainer {
namespace {

// The leader's messages other than bucket requests.
constexpr int64_t kEnd = -1;
constexpr int64_t kSendDigests = -2;
constexpr int kRequestAhead = 1;

}  // namespace

absl::StatusOr<std::unique_ptr<ShardGatherSource>> ShardGatherSource::Create(
    const weights::TransferPlan& plan, RankShards shards, comm::ProcessGroup* group,
    comm::ProcessGroup* control) {
  if (shards.ranks > 1 &&
      (group == nullptr || group->size() < shards.ranks || group->rank() != shards.rank)) {
    return absl::InvalidArgumentError(absl::StrCat("the shards of rank ", shards.rank, " of ",
                                                   shards.ranks, " need the group of these ranks"));
  }
  auto source = absl::WrapUnique(new ShardGatherSource(plan, std::move(shards), group, control));
  ASSIGN_OR_RETURN(source->wire_type_, WireType(plan.manifest));
  source->element_size_ = static_cast<int64_t>(c10::elementSize(source->wire_type_));

  int64_t start = 0;
  for (const int64_t bytes : plan.tensor_bytes) {
    source->tensor_start_.push_back(start);
    start += bytes / source->element_size_;
  }
  RETURN_IF_ERROR(source->shards_.layout == nullptr ? source->CheckWholeUnits()
                                                    : source->CheckLayout());
  RETURN_IF_ERROR(source->PlanTrainable());
  return source;
}

absl::Status ShardGatherSource::PlanTrainable() {
  ASSIGN_OR_RETURN(const weights::TransferPlan trainable,
                   weights::PlanOfManifest(whole_.manifest, /*keeps_frozen=*/true));
  const int64_t bytes = trainable.BroughtBytes();
  if (bytes == 0 || bytes == whole_.total_bytes) return absl::OkStatus();
  ASSIGN_OR_RETURN(trainable_, weights::MakeTransferPlan(
                                   whole_.manifest,
                                   weights::ChooseBucketBytes(whole_.largest_bucket_bytes, bytes),
                                   /*keeps_frozen=*/true));
  return absl::OkStatus();
}

absl::Status ShardGatherSource::CheckWholeUnits() {
  int64_t elements = 0;
  for (const auto& unit : shards_.units) {
    unit_start_.push_back(elements);
    elements += unit.numel;
    const int64_t shard = unit.padded_numel / shards_.ranks;
    if (unit.padded_numel < unit.numel || shard * shards_.ranks != unit.padded_numel ||
        !unit.master.defined() || unit.master.numel() != shard || !unit.master.is_contiguous()) {
      return absl::InvalidArgumentError(
          absl::StrCat("unit ", unit_start_.size() - 1, ": expected a contiguous shard of 1/",
                       shards_.ranks, " of ", unit.padded_numel, " elements"));
    }
  }
  if (elements * element_size_ != whole_.total_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("the units hold ", elements,
                                                   " elements, the manifest ",
                                                   whole_.total_bytes / element_size_));
  }
  return absl::OkStatus();
}

absl::Status ShardGatherSource::CheckLayout() {
  const ShardLayout& layout = *shards_.layout;
  if (layout.num_ranks() != shards_.ranks ||
      static_cast<int>(layout.num_tensors()) != whole_.manifest.tensors_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the layout has ", layout.num_tensors(), " tensors over ", layout.num_ranks(),
                     " ranks, expected ", whole_.manifest.tensors_size(), " over ", shards_.ranks));
  }
  for (size_t i = 0; i < layout.num_tensors(); ++i) {
    if (layout.tensor_numel(i) * element_size_ == whole_.tensor_bytes[i]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", whole_.manifest.tensors(static_cast<int>(i)).name(),
                     ": the layout holds ", layout.tensor_numel(i), " elements, the manifest ",
                     whole_.tensor_bytes[i] / element_size_));
  }
  return absl::OkStatus();
}

void ShardGatherSource::AddRunsOfParts(int rank, int64_t begin, int64_t end, int64_t bucket_offset,
                                       std::vector<Run>& runs) const {
  const auto first = std::upper_bound(tensor_start_.begin(), tensor_start_.end(), begin) -
                     tensor_start_.begin() - 1;
  for (size_t i = std::max<int64_t>(0, first); i < tensor_start_.size() && tensor_start_[i] < end;
       ++i) {
    const int64_t start = tensor_start_[i];
    const int64_t from = std::max(begin, start) - start;
    const int64_t to = std::min(end, start + shards_.layout->tensor_numel(i)) - start;
    for (const ShardLayout::Run& run : shards_.layout->RunsOf(rank, i, from, to - from)) {
      runs.push_back(
          {run.unit, run.shard_offset, bucket_offset + start + run.first - begin, run.count});
    }
  }
}

std::vector<ShardGatherSource::Run> ShardGatherSource::RunsOf(int rank, int bucket) const {
  const auto& pieces = plan_->buckets[bucket].pieces();
  const auto start_of = [this](const common::v1::BucketPiece& piece) {
    return tensor_start_[piece.tensor()] + piece.tensor_offset() / element_size_;
  };
  std::vector<Run> runs;
  for (int i = 0; i < pieces.size();) {
    // Adjacent pieces as one range: a rank sends each of its runs as one message.
    const int64_t bucket_offset = pieces[i].bucket_offset() / element_size_;
    const int64_t begin = start_of(pieces[i]);
    int64_t end = begin;
    for (; i < pieces.size() && start_of(pieces[i]) == end; ++i) {
      end += pieces[i].size_bytes() / element_size_;
    }
    AddRuns(rank, begin, end, bucket_offset, runs);
  }
  return runs;
}

void ShardGatherSource::AddRuns(int rank, int64_t begin, int64_t end, int64_t bucket_offset,
                                std::vector<Run>& runs) const {
  if (shards_.layout != nullptr) return AddRunsOfParts(rank, begin, end, bucket_offset, runs);
  // Starts at the last unit that begins at or before the range.
  auto first =
      std::upper_bound(unit_start_.begin(), unit_start_.end(), begin) - unit_start_.begin() - 1;
  for (size_t u = std::max<int64_t>(0, first); u < shards_.units.size() && unit_start_[u] < end;
       ++u) {
    const auto& unit = shards_.units[u];
    const int64_t shard = unit.padded_numel / shards_.ranks;
    const int64_t shard_begin = unit_start_[u] + rank * shard;
    const int64_t shard_end = std::min(shard_begin + shard, unit_start_[u] + unit.numel);
    const int64_t run_begin = std::max(begin, shard_begin);
    const int64_t run_end = std::min(end, shard_end);
    if (run_begin >= run_end) continue;
    runs.push_back({static_cast<int>(u), run_begin - shard_begin, bucket_offset + run_begin - begin,
                    run_end - run_begin});
  }
}

at::Tensor ShardGatherSource::View(const at::Tensor& bytes, int64_t first, int64_t count) const {
  return bytes.narrow(0, first * element_size_, count * element_size_).view(wire_type_);
}

absl::Status ShardGatherSource::Pack(int bucket, const Run& run, const at::Tensor& destination) {
  weights::Piece piece;
  piece.length = piece.stride = run.count;
  const weights::Place from{run.unit, run.shard_offset, run.count};
  RETURN_IF_ERROR(PackPieces(shards_, {{piece, from}}, destination));
  Evict(shards_.units[run.unit].master);
  contributions_.Note(
      plan_->buckets[bucket], run.bucket_offset * element_size_,
      {static_cast<const std::byte*>(destination.const_data_ptr()), destination.nbytes()});
  // On the host at once, out of the core's cache; a device is waited for once a bucket.
  return ops().on_host() ? contributions_.Digest(ops()) : absl::OkStatus();
}

void ShardGatherSource::ApplyLimit() {
  if (limit_.has_value()) limit_->Apply();
  if (control_limit_.has_value()) control_limit_->Apply();
}

absl::Status ShardGatherSource::SendWord(int rank, int64_t word, Slot& slot) {
  ApplyLimit();
  at::Tensor message = comm::GuardWords<2>({sent_words_[rank]++, word});
  ASSIGN_OR_RETURN(auto work, control_->Send(message, rank, "gather control"));
  slot.works.push_back(std::move(work));
  slot.held.push_back(std::move(message));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ShardGatherSource::ReceiveWord() {
  const at::Tensor message = comm::RoomForWords<2>();
  while (true) {
    ASSIGN_OR_RETURN(auto work, control_->Receive(message, 0, "gather control"));
    RETURN_IF_ERROR(work->Wait());
    const auto [number, word] = comm::ReadGuarded<2>(message);
    if (number < received_words_) continue;  // a duplicate
    received_words_ = number + 1;
    return word;
  }
}

absl::Status ShardGatherSource::DigestKept() {
  if (!plan_->keeps_frozen) return absl::OkStatus();
  std::vector<ShardPiece> held;
  for (int tensor = 0; tensor < plan_->manifest.tensors_size(); ++tensor) {
    if (plan_->Brings(tensor)) continue;
    const int64_t begin = tensor_start_[tensor];
    std::vector<Run> runs;
    AddRuns(shards_.rank, begin, begin + plan_->tensor_bytes[tensor] / element_size_, 0, runs);
    for (const Run& run : runs) {
      held.push_back({{tensor, run.bucket_offset, run.count, run.count},
                      {run.unit, run.shard_offset, run.count}});
    }
  }
  ASSIGN_OR_RETURN(const std::vector<weights::DigestSum> sums,
                   DigestShards(plan_->manifest, shards_, held));
  contributions_.Add(sums);
  return absl::OkStatus();
}

absl::Status ShardGatherSource::CheckGathered(std::vector<weights::TensorDigest>& digests) {
  for (int rank = 1; rank < shards_.ranks; ++rank)
    RETURN_IF_ERROR(SendWord(rank, kSendDigests, requests_[0]));
  RETURN_IF_ERROR(WaitForRequests());
  absl::Status first = DigestKept();                  // while the other ranks digest theirs
  for (int rank = 1; rank < shards_.ranks; ++rank) {  // receive from each, even after an error
    ApplyLimit();
    v1::HeldDigests told;
    absl::Status status = links_[rank].Receive(told, "digests of contributions");
    if (!status.ok() && !absl::IsDataLoss(status)) return status;
    if (status.ok()) status = contributions_.Add(told);
    if (first.ok() && !status.ok()) {
      first =
          absl::Status(status.code(), absl::StrCat("trainer rank ", rank, ": ", status.message()));
    }
  }
  RETURN_IF_ERROR(first);
  RETURN_IF_ERROR(contributions_.Compare(*plan_, digests));
  for (int tensor = 0; tensor < plan_->manifest.tensors_size(); ++tensor) {
    if (plan_->Brings(tensor)) continue;
    digests[tensor] =
        weights::MakeTensorDigest(plan_->manifest.tensors(tensor), contributions_.sum(tensor));
  }
  return absl::OkStatus();
}

absl::Status ShardGatherSource::WaitFor(Slot& slot, int bucket) {
  absl::Status status = comm::WaitForAll(group_, slot.works);
  for (const Landing& landing : slot.landings) {
    if (status.ok()) status = Scatter(landing);
  }
  // The landings' buffers are read until then.
  if (status.ok() && !slot.landings.empty()) status = ops().Synchronize();
  slot.works.clear();
  slot.held.clear();
  slot.landings.clear();
  RETURN_IF_ERROR(status) << "gathering bucket " << bucket;
  return absl::OkStatus();
}

absl::Status ShardGatherSource::Scatter(const Landing& landing) const {
  const auto* from = static_cast<const std::byte*>(landing.packed.const_data_ptr());
  auto* const to = static_cast<std::byte*>(landing.buffer.data_ptr());
  std::vector<weights::CopyRun> runs;
  for (const Run& run : landing.runs) {
    weights::CopyRun& copy = runs.emplace_back();
    copy.from = from;
    copy.to = to + run.bucket_offset * element_size_;
    copy.size = run.count * element_size_;
    from += copy.size;
  }
  return ops().Copy(runs);
}

absl::Status ShardGatherSource::WaitForRequests(int bucket) {
  Slot& slot = requests_[bucket % 2];
  absl::Status status;
  for (auto& work : slot.works) status.Update(work->Wait());
  slot.works.clear();
  slot.held.clear();
  RETURN_IF_ERROR(status) << "gathering bucket " << bucket;
  return absl::OkStatus();
}

absl::Status ShardGatherSource::WaitForRequests() {
  absl::Status status = WaitForRequests(0);
  status.Update(WaitForRequests(1));
  return status;
}

absl::Status ShardGatherSource::RequestBucket(int bucket) {
  // The ranks read the request for the bucket before last before they sent its bytes.
  RETURN_IF_ERROR(WaitForRequests(bucket));
  for (int rank = 1; rank < shards_.ranks; ++rank) {
    RETURN_IF_ERROR(SendWord(rank, FirstWord() + bucket, requests_[bucket % 2]));
  }
  next_request_ = bucket + 1;
  return absl::OkStatus();
}

absl::Status ShardGatherSource::PostReceives(int bucket, const at::Tensor& buffer, Slot& slot) {
  ApplyLimit();
  for (int rank = 1; rank < shards_.ranks; ++rank) {
    std::vector<Run> runs = RunsOf(rank, bucket);
    if (shards_.layout != nullptr) {
      int64_t count = 0;
      for (const Run& run : runs) count += run.count;
      if (count == 0) continue;
      ASSIGN_OR_RETURN(at::Tensor packed, ops().Buffer(count * element_size_));
      ASSIGN_OR_RETURN(auto work,
                       group_->Receive(View(packed, 0, count), rank, plan_->BucketName(bucket)));
      slot.works.push_back(std::move(work));
      slot.landings.push_back({std::move(packed), buffer, std::move(runs)});
      continue;
    }
    for (const Run& run : runs) {
      at::Tensor place = View(buffer, run.bucket_offset, run.count);
      ASSIGN_OR_RETURN(auto work, group_->Receive(place, rank, plan_->BucketName(bucket)));
      slot.works.push_back(std::move(work));
    }
  }
  return absl::OkStatus();
}

absl::Status ShardGatherSource::Choose(bool keeps_frozen) {
  RETURN_IF_ERROR(Drain());
  plan_ = &PlanOf(keeps_frozen);
  return absl::OkStatus();
}

absl::Status ShardGatherSource::Start(int bucket, at::Tensor buffer, weights::PhaseTimes& times) {
  if (bucket != next_start_) {
    RETURN_IF_ERROR(Drain());
    next_start_ = next_request_ = bucket;
  }
  ++next_start_;
  if (bucket == 0) contributions_.Reset();
  const int last_to_request =
      std::min<int>(bucket + kRequestAhead, static_cast<int>(plan_->buckets.size()) - 1);
  while (next_request_ <= last_to_request) {
    RETURN_IF_ERROR(RequestBucket(next_request_));
  }
  RETURN_IF_ERROR(PostReceives(bucket, buffer, slots_[bucket % 2]));
  const auto pack_start = weights::PhaseTimes::Clock::now();
  for (const Run& run : RunsOf(0, bucket)) {
    RETURN_IF_ERROR(Pack(bucket, run, View(buffer, run.bucket_offset, run.count)));
  }
  RETURN_IF_ERROR(contributions_.Digest(ops()));
  times.Worked("pack", pack_start);
  return absl::OkStatus();
}

absl::Status ShardGatherSource::Finish(int bucket) {
  RETURN_IF_ERROR(WaitFor(slots_[bucket % 2], bucket));
  // Its messages have arrived: the peer read the last of them before it sent the bucket's bytes.
  if (next_start_ == static_cast<int>(plan_->buckets.size())) return WaitForRequests();
  return absl::OkStatus();
}

absl::Status ShardGatherSource::Drain() {
  absl::Status status;
  for (; status.ok() && next_start_ < next_request_; ++next_start_) {
    Slot& slot = slots_[next_start_ % 2];
    status = WaitFor(slot, next_start_);
    auto unwanted = ops().Buffer(plan_->buckets[next_start_].size_bytes());
    status.Update(unwanted.status());
    if (!status.ok()) break;
    status = PostReceives(next_start_, *unwanted, slot);
    slot.held.push_back(*std::move(unwanted));
  }
  next_start_ = next_request_ = 0;
  status.Update(WaitFor(slots_[0], 0));
  status.Update(WaitFor(slots_[1], 1));
  status.Update(WaitForRequests());
  return status;
}

void ShardGatherSource::Begin(absl::Time deadline, absl::Duration otherwise) {
  limit_.emplace(group_, otherwise);
  limit_->Begin(deadline);
  if (control_ == group_) return;
  control_limit_.emplace(control_, otherwise);
  control_limit_->Begin(deadline);
}

absl::Status ShardGatherSource::End() {
  RETURN_IF_ERROR(Drain());
  for (int rank = 1; rank < shards_.ranks; ++rank) {
    RETURN_IF_ERROR(SendWord(rank, kEnd, requests_[0]));
  }
  const absl::Status told = WaitForRequests();
  for (std::optional<GroupDeadline>* limit : {&limit_, &control_limit_}) {
    if (limit->has_value()) (*limit)->End();
    limit->reset();
  }
  return told;
}

absl::Status ShardGatherSource::SendBucket(int bucket, at::Tensor staging, Slot& slot) {
  int64_t used = 0;
  for (const Run& run : RunsOf(shards_.rank, bucket)) {
    at::Tensor piece = View(staging, used, run.count);
    used += run.count;
    RETURN_IF_ERROR(Pack(bucket, run, piece));
    if (shards_.layout != nullptr) continue;
    ASSIGN_OR_RETURN(auto work, group_->Send(piece, 0, plan_->BucketName(bucket)));
    slot.works.push_back(std::move(work));
  }
  if (shards_.layout != nullptr && used > 0) {
    ASSIGN_OR_RETURN(auto work, group_->Send(View(staging, 0, used), 0, plan_->BucketName(bucket)));
    slot.works.push_back(std::move(work));
  }
  return contributions_.Digest(ops());
}

absl::StatusOr<int> ShardGatherSource::BucketOf(int64_t word) {
  const auto num_whole = static_cast<int64_t>(whole_.buckets.size());
  plan_ = &PlanOf(has_frozen() && word >= num_whole);
  const int64_t bucket = word - FirstWord();
  if (bucket >= 0 && bucket < static_cast<int64_t>(plan_->buckets.size())) {
    return static_cast<int>(bucket);
  }
  return absl::InternalError(absl::StrCat("the leader asks for bucket ", bucket, " of ",
                                          plan_->buckets.size(),
                                          "; all ranks must run with the same configuration"));
}

absl::Status ShardGatherSource::Follow() {
  if (shards_.ranks == 1) return absl::OkStatus();
  const auto entered = ops().Enter();
  // A rank's runs of a bucket are never more than the bucket.
  std::array<at::Tensor, 2> staging;
  for (int turn = 0;; ++turn) {
    ASSIGN_OR_RETURN(const int64_t word, ReceiveWord());
    if (word == kEnd) break;
    if (word == kSendDigests) {
      RETURN_IF_ERROR(DigestKept());
      RETURN_IF_ERROR(links_[0].Send(contributions_.ToProto(), "digests of contributions"));
      continue;
    }
    ASSIGN_OR_RETURN(const int bucket, BucketOf(word));
    if (bucket == 0) contributions_.Reset();
    Slot& slot = slots_[turn % 2];
    RETURN_IF_ERROR(WaitFor(slot, bucket));
    at::Tensor& buffer = staging[turn % 2];
    if (!buffer.defined()) {
      ASSIGN_OR_RETURN(buffer, ops().Buffer(whole_.largest_bucket_bytes));
    }
    RETURN_IF_ERROR(SendBucket(bucket, buffer, slot));
  }
  absl::Status status = WaitFor(slots_[0], 0);
  status.Update(WaitFor(slots_[1], 1));
  return status;
}

}  // namespace tandem::trainer
