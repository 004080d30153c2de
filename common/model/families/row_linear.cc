#include "common/model/families/row_linear.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

using nlohmann::json;

// The kernels keep a convolution's inputs of this many tokens at hand.
constexpr int64_t kMaxKernelSize = 64;

// Refuses what has not been computed together with linear attention.
absl::Status CheckRow(const v1::FamilyRow& row, const RowValues& values, const ModelSpec& spec) {
  const char* const extra = row.has_latent() ? "latent" : row.has_windows() ? "windows" : nullptr;
  if (extra != nullptr) {
    return absl::UnimplementedError(
        absl::StrCat(values.config().place(), ": the row of ", row.architecture(),
                     " has \"linear_attention\" and \"", extra,
                     "\", which are not supported together; remove one of them from the row"));
  }
  if (spec.layers.front().feed_forward.activation != Activation::kSilu) {
    const RowValues::Source source = values.SourceOf(row.activation());
    return source.object.Unsupported(source.key.c_str(),
                                     "silu, which the convolution of linear attention has too");
  }
  return absl::OkStatus();
}

// Says for each layer whether it has linear attention.
absl::StatusOr<std::vector<bool>> LinearLayers(const v1::LinearAttention& row,
                                               const RowValues& values, int64_t num_layers) {
  const ConfigReader& config = values.config();
  std::vector<bool> linear;
  if (!config.Has("layer_types")) {
    ASSIGN_OR_RETURN(const int64_t every, values.Size(row.full_every(), kMaxLayers));
    for (int64_t i = 0; i < num_layers; ++i) linear.push_back((i + 1) % every != 0);
    return linear;
  }
  const json& types = config.At("layer_types");
  if (!types.is_array() || static_cast<int64_t>(types.size()) != num_layers) {
    return config.Invalid("layer_types",
                          absl::StrCat("a list of \"num_hidden_layers\", ", num_layers, ", names"));
  }
  for (const json& type : types) {
    if (type != "linear_attention" && type != "full_attention") {
      return config.Unsupported("layer_types", "linear_attention, full_attention");
    }
    linear.push_back(type == "linear_attention");
  }
  return linear;
}

}  // namespace

absl::Status ParseLinearAttention(const v1::FamilyRow& row, const RowValues& values,
                                  ModelSpec& spec) {
  if (!row.has_linear_attention()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckRow(row, values, spec));
  const v1::LinearAttention& from = row.linear_attention();
  DeltaSpec delta;
  ASSIGN_OR_RETURN(delta.num_key_heads, values.Size(from.num_key_heads(), kMaxHeads));
  ASSIGN_OR_RETURN(delta.num_value_heads, values.Size(from.num_value_heads(), kMaxHeads));
  if (delta.num_value_heads % delta.num_key_heads != 0) {
    return values.SourceOf(from.num_value_heads())
        .Invalid(absl::StrCat("a multiple of \"", values.SourceOf(from.num_key_heads()).key, "\", ",
                              delta.num_key_heads));
  }
  ASSIGN_OR_RETURN(delta.key_dim, values.Size(from.key_dim(), kMaxHeadDim));
  ASSIGN_OR_RETURN(delta.value_dim, values.Size(from.value_dim(), kMaxHeadDim));
  ASSIGN_OR_RETURN(delta.kernel_size, values.Size(from.kernel_size(), kMaxKernelSize));
  delta.norm_eps = spec.layers.front().norm.eps;
  ASSIGN_OR_RETURN(const std::vector<bool> linear, LinearLayers(from, values, spec.num_layers()));
  bool has_full = false;
  for (size_t i = 0; i < linear.size(); ++i) {
    if (linear[i]) spec.layers[i].attention.delta = delta;
    has_full = has_full || !linear[i];
  }
  if (has_full) return absl::OkStatus();
  return values.config().Has("layer_types")
             ? values.config().Invalid("layer_types",
                                       "a list in which one layer at least has full_attention")
             : values.SourceOf(from.full_every())
                   .Invalid(absl::StrCat("at most \"num_hidden_layers\", ", spec.num_layers(),
                                         ", so that a layer has full attention"));
}

}  // namespace tandem::model
