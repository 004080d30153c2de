#include "common/model/families/row_latent.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/model/families/rotary_config.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

// Refuses what layer_forward.h does not compute with a latent.
absl::Status CheckRow(const v1::FamilyRow& row, const RowValues& values) {
  const bool has_qk_norm =
      row.qk_norm() != v1::QK_NORM_UNSPECIFIED && row.qk_norm() != v1::QK_NORM_NONE;
  ASSIGN_OR_RETURN(const double clip, values.Limit(row.clip_qkv()));
  ASSIGN_OR_RETURN(const double alibi, values.Positive(row.alibi_scale(), 0.0));
  ASSIGN_OR_RETURN(const bool scales_queries, values.Flag(row.query_position_scale(), false));
  ASSIGN_OR_RETURN(const bool sinks, values.Flag(row.sinks(), false));
  ASSIGN_OR_RETURN(const bool gate, values.Flag(row.output_gate(), false));
  const char* const extra = has_qk_norm                            ? "qk_norm"
                            : sinks                                ? "sinks"
                            : gate                                 ? "output_gate"
                            : clip > 0                             ? "clip_qkv"
                            : alibi > 0                            ? "alibi_scale"
                            : scales_queries                       ? "query_position_scale"
                            : row.has_query_scale()                ? "query_scale"
                            : !row.attention_value_scale().empty() ? "attention_value_scale"
                                                                   : nullptr;
  if (extra == nullptr) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      values.config().place(), ": the row of ", row.architecture(), " has \"latent\" and \"", extra,
      "\", which latent attention does not support; remove one of them from the row"));
}

}  // namespace

absl::Status ParseLatent(const v1::FamilyRow& row, const RowValues& values, AttentionSpec& spec) {
  RETURN_IF_ERROR(CheckRow(row, values));
  const v1::Latent& from = row.latent();
  if (spec.num_kv_heads != spec.num_heads) {
    return values.SourceOf(row.num_kv_heads())
        .Invalid(absl::StrCat("\"", values.SourceOf(row.num_heads()).key, "\", ", spec.num_heads,
                              ", as every head has keys of its own in latent attention"));
  }
  LatentSpec& latent = spec.latent.emplace();
  ASSIGN_OR_RETURN(latent.kv_rank, values.Size(from.kv_rank(), kMaxWidth));
  ASSIGN_OR_RETURN(latent.q_rank, values.Count(from.q_rank(), kMaxWidth, 0));
  ASSIGN_OR_RETURN(const int64_t nope_dim, values.Size(from.nope_dim(), kMaxHeadDim));
  ASSIGN_OR_RETURN(latent.rope_dim, values.Size(from.rope_dim(), kMaxHeadDim));
  if (latent.rope_dim % 2 != 0) {
    return values.SourceOf(from.rope_dim()).Invalid("even, for rotary embeddings");
  }
  ASSIGN_OR_RETURN(latent.bias, values.Flag(from.bias(), false));
  ASSIGN_OR_RETURN(latent.norm.eps, values.Positive(from.norm_eps(), 1e-6));
  spec.head_dim = nope_dim + latent.rope_dim;
  return absl::OkStatus();
}

absl::Status ScaleLatentScores(const ConfigReader& config, ModelSpec& spec) {
  ASSIGN_OR_RETURN(const double magnitude, ScoreMagnitude(config));
  if (magnitude == 1.0) return absl::OkStatus();
  for (LayerSpec& layer : spec.layers) {
    AttentionSpec& attention = layer.attention;
    if (!attention.latent.has_value()) continue;
    attention.scale = attention.ScoreScale() * magnitude * magnitude;
  }
  return absl::OkStatus();
}

}  // namespace tandem::model
