#include "services/trainer/fsdp/shard_digests.h"

#include <algorithm>

#include "common/weights/digest.h"

namespace tandem::trainer {
namespace {

int64_t ColumnsOf(const std::vector<int64_t>& shape) {
  int64_t columns = 1;
  for (size_t dim = 1; dim < shape.size(); ++dim) columns *= shape[dim];
  return columns;
}

// The segment, all of which would be at `bytes`, as a part of its logical tensor.
weights::DigestRun RunOf(const model::Segment& segment, int64_t element_bytes,
                         const std::byte* bytes) {
  weights::DigestRun run;
  run.bytes = bytes;
  run.row_bytes = segment.numel * element_bytes;
  if (segment.shape == segment.global_shape) return run;
  const int64_t columns = ColumnsOf(segment.global_shape);
  const int64_t first_column = segment.start.size() > 1 ? segment.start[1] : 0;
  run.offset = (segment.start[0] * columns + first_column) * element_bytes;
  run.stride = columns * element_bytes;
  run.row_bytes = ColumnsOf(segment.shape) * element_bytes;
  run.rows = segment.shape[0];
  return run;
}

}  // namespace

ShardDigests::ShardDigests(const model::ParameterTable& table, int unit, int64_t offset,
                           int64_t numel, int64_t element_bytes)
    : table_(table), offset_(offset), numel_(numel), element_bytes_(element_bytes) {
  for (size_t i = 0; i < table_.segments().size(); ++i) {
    const model::ParameterTable::SegmentRef ref = table_.segments()[i];
    const model::Segment& segment = table_.segment(ref);
    const int64_t begin = std::max(segment.offset, offset_);
    const int64_t end = std::min(segment.offset + segment.numel, offset_ + numel_);
    if (table_.parameter(ref.parameter).unit != unit || begin >= end) continue;
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
  std::vector<weights::DigestSum> sums(segments_.size());
  std::vector<weights::DigestRun> runs;
  for (size_t i = 0; i < segments_.size(); ++i) {
    const model::Segment& segment = *segments_[i];
    const int64_t first = std::max(segment.offset, offset_ + begin);
    const int64_t last = std::min(segment.offset + segment.numel, offset_ + end);
    if (first >= last) continue;
    const auto start = reinterpret_cast<uintptr_t>(bytes) +
                       static_cast<uintptr_t>((segment.offset - offset_ - begin) * element_bytes_);
    runs.clear();
    weights::AppendPart(RunOf(segment, element_bytes_, reinterpret_cast<const std::byte*>(start)),
                        (first - segment.offset) * element_bytes_, (last - first) * element_bytes_,
                        runs);
    for (const weights::DigestRun& run : runs) {
      weights::AddStrided(run.offset, run.stride, run.row_bytes,
                          {run.bytes, static_cast<size_t>(run.row_bytes * run.rows)}, sums[i]);
    }
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
