#include "common/model/families/row_heads.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/model/families/row_latent.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

// Elements of a head of values.
absl::Status ParseValueDim(const v1::FamilyRow& row, const RowValues& values, AttentionSpec& spec) {
  if (row.v_head_dim().empty()) return absl::OkStatus();
  int64_t dim = values.sizes.hidden / spec.num_heads;
  if (!values.IsNull(row.v_head_dim())) {
    ASSIGN_OR_RETURN(dim, values.Size(row.v_head_dim(), kMaxHeadDim));
  }
  if (dim < 1 || dim > kMaxHeadDim) {
    return values.SourceOf(row.v_head_dim())
        .Invalid(absl::StrCat("an integer from 1 to ", kMaxHeadDim));
  }
  spec.v_head_dim = dim == spec.head_dim ? 0 : dim;
  return absl::OkStatus();
}

// Puts a value that windows have of their own in the place of the row's.
void Replace(const RowValue& of_windows, RowValue* of_row) {
  if (!of_windows.empty()) *of_row = of_windows;
}

}  // namespace

absl::Status ParseHeads(const v1::FamilyRow& row, RowValues& values, AttentionSpec& spec) {
  ASSIGN_OR_RETURN(spec.num_heads, values.Size(row.num_heads(), kMaxHeads));
  values.sizes.num_heads = spec.num_heads;
  const RowValue& kv_heads = row.num_kv_heads();
  ASSIGN_OR_RETURN(spec.num_kv_heads, values.Size(kv_heads, kMaxHeads));
  if (values.IsNull(kv_heads)) spec.num_kv_heads = spec.num_heads;
  if (spec.num_heads % spec.num_kv_heads != 0) {
    return values.SourceOf(kv_heads).Invalid(absl::StrCat(
        "a divisor of \"", values.SourceOf(row.num_heads()).key, "\", ", spec.num_heads));
  }
  values.sizes.num_kv_heads = spec.num_kv_heads;
  if (row.has_latent()) {
    RETURN_IF_ERROR(ParseLatent(row, values, spec));
    values.sizes.head_dim = spec.head_dim;
    return ParseValueDim(row, values, spec);
  }
  const int64_t hidden = values.sizes.hidden;
  const bool quotient =
      values.IsNull(row.head_dim()) || values.IsConstant(row.head_dim(), "hidden / num_heads");
  if (quotient && hidden % spec.num_heads != 0) {
    return values.SourceOf(row.num_heads())
        .Invalid(absl::StrCat("a divisor of \"hidden_size\", ", hidden,
                              ", where \"head_dim\" is absent"));
  }
  if (quotient) {
    spec.head_dim = hidden / spec.num_heads;
    if (spec.head_dim > kMaxHeadDim) {
      return values.SourceOf(row.num_heads())
          .Invalid(absl::StrCat("heads of at most ", kMaxHeadDim, " elements"));
    }
  } else {
    ASSIGN_OR_RETURN(spec.head_dim, values.Size(row.head_dim(), kMaxHeadDim));
  }
  if (row.rope_layers() != v1::ROPE_LAYERS_NONE && spec.head_dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(values.config().place(),
                     ": \"head_dim\" must be even, for rotary embeddings; found ", spec.head_dim));
  }
  values.sizes.head_dim = spec.head_dim;
  return ParseValueDim(row, values, spec);
}

void TakeHeads(const AttentionSpec& heads, AttentionSpec& attention) {
  attention.num_heads = heads.num_heads;
  attention.num_kv_heads = heads.num_kv_heads;
  attention.head_dim = heads.head_dim;
  attention.v_head_dim = heads.v_head_dim;
}

v1::FamilyRow WindowedRow(const v1::FamilyRow& row) {
  const v1::Windows& windows = row.windows();
  v1::FamilyRow windowed = row;
  Replace(windows.num_heads(), windowed.mutable_num_heads());
  Replace(windows.num_kv_heads(), windowed.mutable_num_kv_heads());
  Replace(windows.head_dim(), windowed.mutable_head_dim());
  Replace(windows.v_head_dim(), windowed.mutable_v_head_dim());
  Replace(windows.sinks(), windowed.mutable_sinks());
  Replace(windows.values_are_keys(), windowed.mutable_values_are_keys());
  return windowed;
}

absl::Status ParseWindowedHeads(const v1::FamilyRow& row, const RowValues& values,
                                ModelSpec& spec) {
  const auto has_window = [](const LayerSpec& layer) { return layer.attention.window.IsLimited(); };
  if (std::none_of(spec.layers.begin(), spec.layers.end(), has_window)) return absl::OkStatus();
  const v1::FamilyRow windowed = WindowedRow(row);
  RowValues of_windows = values;
  AttentionSpec heads;
  RETURN_IF_ERROR(ParseHeads(windowed, of_windows, heads));
  ASSIGN_OR_RETURN(const bool sinks, of_windows.Flag(windowed.sinks(), false));
  ASSIGN_OR_RETURN(const bool keys, of_windows.Flag(windowed.values_are_keys(), false));
  for (LayerSpec& layer : spec.layers) {
    if (!has_window(layer)) continue;
    AttentionSpec& attention = layer.attention;
    TakeHeads(heads, attention);
    attention.sinks = sinks;
    attention.values_are_keys = keys;
  }
  return absl::OkStatus();
}

}  // namespace tandem::model
