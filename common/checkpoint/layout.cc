#include "common/checkpoint/layout.h"

namespace tandem::checkpoint {
namespace {

int64_t Columns(const std::vector<int64_t>& shape) {
  int64_t columns = 1;
  for (size_t i = 1; i < shape.size(); ++i) columns *= shape[i];
  return columns;
}

// Tensors of more than two dimensions are split along the first.
Box BoxOf(const model::Segment& segment) {
  const Box local = WholeBox(segment.shape);
  Box box = local;
  box.row_begin = segment.start.empty() ? 0 : segment.start[0];
  box.column_begin = segment.start.size() == 2 ? segment.start[1] : 0;
  box.row_end = box.row_begin + local.row_end;
  box.column_end = box.column_begin + local.column_end;
  return box;
}

}  // namespace

int64_t NumElements(const std::vector<int64_t>& shape) {
  int64_t numel = 1;
  for (const int64_t size : shape) numel *= size;
  return numel;
}

int64_t Run::columns() const { return Columns(shape); }

Box WholeBox(const std::vector<int64_t>& shape) {
  return {0, shape.empty() ? 1 : shape[0], 0, Columns(shape)};
}

std::vector<Run> RunsOfRange(const model::ParameterTable& table, int unit, int64_t begin,
                             int64_t end) {
  std::vector<Run> runs;
  for (const int index : table.units()[unit].parameters) {
    for (const model::Segment& segment : table.parameter(index).segments) {
      const int64_t first = std::max(begin, segment.offset);
      const int64_t last = std::min(end, segment.offset + segment.numel);
      if (first >= last) continue;
      runs.push_back({segment.name, segment.global_shape, BoxOf(segment), first - segment.offset,
                      last - first, first - begin});
    }
  }
  return runs;
}

void Intersect(const Run& run, int64_t first, int64_t count, Part part) {
  const int64_t end = first + count;
  const int64_t columns = run.columns();
  const Box& box = run.box;
  const int64_t width = box.width();
  if (width == columns) {  // the box's rows follow one another in the tensor
    const int64_t run_first = box.row_begin * columns + run.begin;
    const int64_t low = std::max(first, run_first);
    const int64_t high = std::min(end, run_first + run.count);
    if (low < high) part(low, high - low, low - run_first);
    return;
  }
  if (run.count == 0 || count == 0) return;
  const int64_t last_of_run = run.begin + run.count - 1;
  const int64_t row_begin = std::max(first / columns, box.row_begin + run.begin / width);
  const int64_t row_last = std::min((end - 1) / columns, box.row_begin + last_of_run / width);
  for (int64_t row = row_begin; row <= row_last; ++row) {
    const int64_t row_in_box = (row - box.row_begin) * width;
    // Elements of the box that are in the run, and of the tensor that are asked for.
    const int64_t box_low = std::max(run.begin, row_in_box);
    const int64_t box_high = std::min(run.begin + run.count, row_in_box + width);
    const int64_t to_tensor = row * columns + box.column_begin - row_in_box;
    const int64_t low = std::max(first, box_low + to_tensor);
    const int64_t high = std::min(end, box_high + to_tensor);
    if (low < high) part(low, high - low, low - to_tensor - run.begin);
  }
}

}  // namespace tandem::checkpoint
