// StoredView: the place of a parameter, or of some of its rows, in a tensor of a model's folder, as
// strides over that tensor. The view's elements in row-major order are the parameter's.
//
//   // k of a GPT-NeoX layer with 4 heads of 8: the second of three in each head's 24 rows.
//   const StoredView k{.tensor = "gpt_neox.layers.0.attention.query_key_value.weight",
//                      .tensor_shape = {96, 32}, .offset = 8 * 32,
//                      .sizes = {4, 256}, .strides = {24 * 32, 1}};
//   GatherElements(k, 0, 1024, sizeof(float), bytes, out);
#ifndef TANDEM_COMMON_MODEL_STORED_VIEW_H_
#define TANDEM_COMMON_MODEL_STORED_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"

namespace tandem::model {

struct StoredView {
  std::string tensor;  // the folder's name
  std::vector<int64_t> tensor_shape;
  int64_t first = 0;   // index in the parameter of the view's first element
  int64_t offset = 0;  // index in the tensor of the same element
  // At least one dimension; those that a single stride covers are one (Simplify()). Strides are
  // positive.
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  // in elements

  int64_t numel() const;
  // Whether the elements follow one another in the tensor.
  bool contiguous() const { return sizes.size() == 1 && strides[0] == 1; }
  // Whether the view is the whole tensor, in its order.
  bool IsWholeTensor() const;

  friend bool operator==(const StoredView&, const StoredView&) = default;
};

// Drops dimensions of one element and merges neighbours that a single stride covers.
void Simplify(StoredView& view);

// Elements of a view at one stride: index `first + i` of the parameter is index
// `stored + i * stride` of the tensor.
struct StoredRun {
  int64_t first = 0;
  int64_t stored = 0;
  int64_t count = 0;
  int64_t stride = 1;
};

// Calls body, in order, for the runs of elements [first, first + count) of the parameter, which
// must lie in the view.
void ForStoredRuns(const StoredView& view, int64_t first, int64_t count,
                   absl::FunctionRef<void(const StoredRun&)> body);

// Copies elements [first, first + count) of the parameter from the bytes of the stored tensor to
// `out`; no alignment is needed. `element_size` is 2 or 4.
void GatherElements(const StoredView& view, int64_t first, int64_t count, int64_t element_size,
                    const std::byte* tensor, std::byte* out);

// Copies the other way, from `in` to the bytes of the stored tensor.
void ScatterElements(const StoredView& view, int64_t first, int64_t count, int64_t element_size,
                     const std::byte* in, std::byte* tensor);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_STORED_VIEW_H_
