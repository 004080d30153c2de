#include "common/model/segment_box.h"

#include <algorithm>

#include "common/status/status_macros.h"

namespace tandem::model {

Box WholeBox(const std::vector<int64_t>& shape) {
  Box box{0, shape.empty() ? 1 : shape[0], 0, 1};
  for (size_t i = 1; i < shape.size(); ++i) box.column_end *= shape[i];
  return box;
}

Box BoxOf(const Segment& segment) {
  const int64_t row = segment.start.empty() ? 0 : segment.start[0];
  const int64_t column = segment.start.size() == 2 ? segment.start[1] : 0;
  const Box local = WholeBox(segment.shape);
  return {row, row + local.row_end, column, column + local.column_end};
}

absl::Status ForRuns(const Box& box, int64_t columns, Range local, Range logical, BoxRunBody body) {
  if (box.numel() == 0) return absl::OkStatus();
  // A box of full rows is contiguous.
  const bool full = box.width() == columns;
  const int64_t width = full ? box.numel() : box.width();
  const int64_t num_stretches = box.numel() / width;
  const int64_t start = box.row_begin * columns + box.column_begin;
  int64_t i = local.begin / width;
  if (!full && logical.begin > start) i = std::max(i, (logical.begin - start) / columns);
  for (; i < num_stretches; ++i) {
    const int64_t in_box = i * width;
    const int64_t in_tensor = start + i * columns;
    if (in_box >= local.end || in_tensor >= logical.end) break;
    const int64_t begin = std::max({int64_t{0}, local.begin - in_box, logical.begin - in_tensor});
    const int64_t end = std::min({width, local.end - in_box, logical.end - in_tensor});
    if (begin >= end) continue;
    RETURN_IF_ERROR(body({in_tensor + begin, in_box + begin, end - begin}));
  }
  return absl::OkStatus();
}

absl::Status ForRuns(const Segment& segment, Range local, Range logical, BoxRunBody body) {
  return ForRuns(BoxOf(segment), WholeBox(segment.global_shape).width(), local, logical, body);
}

absl::Status ForRunsOfBox(const Segment& segment, int64_t first, int64_t count, BoxRunBody body) {
  return ForRuns(segment, {first, first + count}, {0, WholeBox(segment.global_shape).numel()},
                 body);
}

absl::Status ForRunsOfTensor(const Segment& segment, int64_t first, int64_t count,
                             BoxRunBody body) {
  return ForRuns(segment, {0, segment.numel}, {first, first + count}, body);
}

}  // namespace tandem::model
