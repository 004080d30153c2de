// Reads latent attention (common/model/layers/latent_spec.h) from a config.json as a family's row
// says.
#ifndef TANDEM_COMMON_MODEL_FAMILIES_ROW_LATENT_H_
#define TANDEM_COMMON_MODEL_FAMILIES_ROW_LATENT_H_

#include "absl/status/status.h"
#include "common/model/families/row_value.h"
#include "common/model/layers/attention_spec.h"
#include "common/model/model_spec.h"
#include "tandem/model/v1/family.pb.h"

namespace tandem::model {

// Sets head_dim, v_head_dim and the latent of `spec`, whose numbers of heads are set.
// INVALID_ARGUMENT names the key: a bad size, or key-value heads that are not as many as the query
// heads. UNIMPLEMENTED: the row has parts that go with no latent (AttentionSpec::latent).
absl::Status ParseLatent(const v1::FamilyRow& row, const RowValues& values, AttentionSpec& spec);

// Multiplies the scores of latent layers by the square of YaRN's magnitude for "mscale_all_dim" of
// `config`'s rope parameters, if it has them.
absl::Status ScaleLatentScores(const ConfigReader& config, ModelSpec& spec);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_FAMILIES_ROW_LATENT_H_
