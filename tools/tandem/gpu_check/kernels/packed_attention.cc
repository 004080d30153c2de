// Attention over packed sequences, and over images, whose tokens see all of theirs, with exact numerics.
#include "common/model/packed_attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "common/model/device_packed_attention.h"
#include "common/model/image_attention.h"
#include "tools/tandem/gpu_check/kernels/attention_reference.h"
#include "tools/tandem/gpu_check/kernels/comparison.h"
#include "tools/tandem/gpu_check/kernels/with_exact_numerics.h"

namespace tandem::gpu_check {
namespace {

void ComparePacked(Comparer& comparer, const model::QkvShape& shape,
                   const std::vector<int64_t>& lengths, const model::AttentionParams& params,
                   const std::string& what) {
  const int64_t rows = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  const at::Tensor q = comparer.Random({rows, shape.num_heads, shape.head_dim});
  const at::Tensor k = comparer.Random({rows, shape.num_kv_heads, shape.head_dim});
  const at::Tensor v = comparer.Random({rows, shape.num_kv_heads, shape.head_dim});
  comparer.ExpectOurs(model::device::PackedAttentionTakes(q, k, v));
  std::vector<int64_t> ends = {0};
  for (const int64_t length : lengths) ends.push_back(ends.back() + length);
  model::PackedAttention attention(at::tensor(ends));
  const at::Tensor found = attention.Forward(0, q, k, v, params);
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto part = [&](const at::Tensor& all) { return all.narrow(0, ends[i], lengths[i]); };
    comparer.Expect(part(found), AttentionReference(part(q), part(k), part(v), params),
                    comparer.tolerance(),
                    absl::StrCat(shape.num_heads, " and ", shape.num_kv_heads, " heads of ",
                                 shape.head_dim, ", ", lengths[i], " tokens", what));
  }
}

void CompareImages(Comparer& comparer, const model::QkvShape& shape,
                   const std::vector<int64_t>& lengths) {
  model::AttentionParams params;
  params.scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
  std::vector<int64_t> ends = {0};
  for (const int64_t length : lengths) ends.push_back(ends.back() + length);
  const auto draw = [&] { return comparer.Random({ends.back(), shape.num_heads, shape.head_dim}); };
  const at::Tensor q = draw();
  const at::Tensor k = draw();
  const at::Tensor v = draw();
  comparer.ExpectOurs(model::device::PackedAttentionTakes(q, k, v));
  model::ImageAttention attention(ends);
  const at::Tensor found = attention.Forward(0, q, k, v, params);
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto part = [&](const at::Tensor& all) { return all.narrow(0, ends[i], lengths[i]); };
    std::vector<at::Tensor> rows;
    for (int64_t row = 0; row < lengths[i]; ++row) {
      // As the last of its image it sees all.
      rows.push_back(AttentionReference(part(q).narrow(0, row, 1), part(k), part(v), params));
    }
    comparer.Expect(part(found), at::cat(rows), comparer.tolerance(),
                    absl::StrCat(shape.num_heads, " heads of ", shape.head_dim, ", an image of ",
                                 lengths[i], " tokens"));
  }
}

}  // namespace

void ComparePackedAttention(Comparer& comparer) {
  const WithExactNumerics exact;
  const std::vector<int64_t> lengths =
      comparer.small() ? std::vector<int64_t>{3, 20} : std::vector<int64_t>{1, 5, 300, 64, 700};
  for (const model::QkvShape& shape :
       {model::QkvShape{14, 2, 64}, model::QkvShape{8, 8, 128}, model::QkvShape{6, 2, 12}}) {
    model::AttentionParams params;
    params.scale = 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
    ComparePacked(comparer, shape, lengths, params, "");
    params.softcap = 2.0;
    params.window = 37;
    ComparePacked(comparer, shape, lengths, params, ", softcap, window");
    params.sinks = at::randn({shape.num_heads}).to(comparer.options());
    ComparePacked(comparer, shape, lengths, params, ", softcap, window, sinks");
  }
  const std::vector<int64_t> images =
      comparer.small() ? std::vector<int64_t>{3, 9} : std::vector<int64_t>{1, 64, 200};
  for (const int64_t head_dim : {72, 80}) {
    CompareImages(comparer, {.num_heads = 4, .num_kv_heads = 4, .head_dim = head_dim}, images);
  }
}

}  // namespace tandem::gpu_check
