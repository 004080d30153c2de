#include "services/trainer/fsdp/shard_digests.h"

#include <algorithm>

#include "common/model/segment_box.h"

namespace tandem::trainer {

ShardDigests::ShardDigests(const model::ParameterTable& table, int unit, int64_t offset,
                           int64_t numel, int64_t element_bytes)
    : offset_(offset), numel_(numel), element_bytes_(element_bytes) {
  for (size_t i = 0; i < table.segments().size(); ++i) {
    const model::ParameterTable::SegmentRef ref = table.segments()[i];
    const model::Segment& segment = table.segment(ref);
    const int64_t begin = std::max(segment.offset, offset_);
    const int64_t end = std::min(segment.offset + segment.numel, offset_ + numel_);
    if (table.parameter(ref.parameter).unit != unit || begin >= end) continue;
    segments_.push_back(&segment);
    parts_.push_back({static_cast<int>(i), end - begin, {}});
  }
}

void ShardDigests::Clear() {
  absl::MutexLock lock(&mu_);
  for (Part& part : parts_) part.sum = {};
  told_ = 0;
}

void ShardDigests::Add(int64_t begin, int64_t end, const std::byte* bytes) {
  // Digests without the lock; the threads meet only to add their sums, whose order does not matter.
  std::vector<weights::DigestSum> sums(segments_.size());
  for (size_t i = 0; i < segments_.size(); ++i) {
    const model::Segment& segment = *segments_[i];
    const int64_t first = std::max(segment.offset, offset_ + begin);
    const int64_t last = std::min(segment.offset + segment.numel, offset_ + end);
    if (first >= last) continue;
    const std::byte* from = bytes + (first - offset_ - begin) * element_bytes_;
    model::ForRunsOfBox(segment, first - segment.offset, last - first,
                        [&](const model::BoxRun& run) {
                          const int64_t size = run.count * element_bytes_;
                          weights::AddRange(run.logical * element_bytes_,
                                            {from, static_cast<size_t>(size)}, sums[i]);
                          from += size;
                          return absl::OkStatus();
                        })
        .IgnoreError();
  }
  absl::MutexLock lock(&mu_);
  for (size_t i = 0; i < sums.size(); ++i) parts_[i].sum.Add(sums[i]);
  told_ += end - begin;
}

bool ShardDigests::is_complete() const {
  absl::MutexLock lock(&mu_);
  return told_ == numel_;
}

std::vector<ShardDigests::Part> ShardDigests::parts() const {
  absl::MutexLock lock(&mu_);
  return parts_;
}

}  // namespace tandem::trainer
