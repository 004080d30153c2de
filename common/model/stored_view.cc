#include "common/model/stored_view.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/model/parameter.h"

namespace tandem::model {
namespace {

// Copies elements of kSize bytes at these strides, which count bytes. A constant size lets memcpy
// become one move.
template <size_t kSize>
void CopyAtStrides(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride,
                   int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(to + i * to_stride, from + i * from_stride, kSize);
  }
}

void CopyRun(int64_t element_size, const std::byte* from, int64_t from_stride, std::byte* to,
             int64_t to_stride, int64_t count) {
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(count * element_size));
  } else if (element_size == 2) {
    CopyAtStrides<2>(from, 2 * from_stride, to, 2 * to_stride, count);
  } else {
    CopyAtStrides<4>(from, 4 * from_stride, to, 4 * to_stride, count);
  }
}

}  // namespace

int64_t StoredView::numel() const { return NumElements(sizes); }

bool StoredView::IsWholeTensor() const {
  return contiguous() && offset == 0 && sizes[0] == NumElements(tensor_shape);
}

void Simplify(StoredView& view) {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  for (size_t i = 0; i < view.sizes.size(); ++i) {
    const int64_t size = view.sizes[i];
    const int64_t stride = view.strides[i];
    if (size == 1) continue;
    if (!sizes.empty() && strides.back() == size * stride) {
      sizes.back() *= size;
      strides.back() = stride;
    } else {
      sizes.push_back(size);
      strides.push_back(stride);
    }
  }
  if (sizes.empty()) {
    sizes.push_back(1);
    strides.push_back(1);
  }
  view.sizes = std::move(sizes);
  view.strides = std::move(strides);
}

void ForStoredRuns(const StoredView& view, int64_t first, int64_t count,
                   absl::FunctionRef<void(const StoredRun&)> body) {
  const int64_t inner = view.sizes.back();
  const int64_t begin = first - view.first;
  const int64_t end = begin + count;
  for (int64_t at = begin; at < end;) {
    const int64_t stretch = at / inner;
    const int64_t run = std::min(end, (stretch + 1) * inner) - at;
    int64_t stored = view.offset + (at - stretch * inner) * view.strides.back();
    int64_t rest = stretch;
    for (size_t d = view.sizes.size() - 1; d-- > 0;) {
      stored += rest % view.sizes[d] * view.strides[d];
      rest /= view.sizes[d];
    }
    body({view.first + at, stored, run, view.strides.back()});
    at += run;
  }
}

void GatherElements(const StoredView& view, int64_t first, int64_t count, int64_t element_size,
                    const std::byte* tensor, std::byte* out) {
  ForStoredRuns(view, first, count, [&](const StoredRun& run) {
    CopyRun(element_size, tensor + run.stored * element_size, run.stride,
            out + (run.first - first) * element_size, 1, run.count);
  });
}

void ScatterElements(const StoredView& view, int64_t first, int64_t count, int64_t element_size,
                     const std::byte* in, std::byte* tensor) {
  ForStoredRuns(view, first, count, [&](const StoredRun& run) {
    CopyRun(element_size, in + (run.first - first) * element_size, 1,
            tensor + run.stored * element_size, run.stride, run.count);
  });
}

}  // namespace tandem::model
