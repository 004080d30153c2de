#include "tools/tandem/plan/moe_shape.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::plan {
namespace {

using weights::TensorRule;
using Split = TensorRule::Split;

const std::map<std::string, MoeSpec>& Shapes() {
  // moe-1t: the config.json of Kimi K2, 1.03 * 10^12 parameters.
  static const auto& shapes = *new std::map<std::string, MoeSpec>{{"moe-1t",
                                                                   {.hidden_size = 7168,
                                                                    .num_layers = 61,
                                                                    .num_dense_layers = 1,
                                                                    .intermediate_size = 18432,
                                                                    .expert_size = 2048,
                                                                    .num_experts = 384,
                                                                    .num_shared_experts = 1,
                                                                    .num_heads = 64,
                                                                    .q_rank = 1536,
                                                                    .kv_rank = 512,
                                                                    .rope_dim = 64,
                                                                    .nope_dim = 128,
                                                                    .value_dim = 128,
                                                                    .vocab_size = 163840}}};
  return shapes;
}

class TensorList {
 public:
  explicit TensorList(const MoeSpec& spec) : spec_(spec) {}

  void Whole(std::string name, int64_t rows, int64_t columns = 1) {
    Add(std::move(name), rows, columns, Split::kWhole, 1);
  }
  void Rows(std::string name, int64_t rows, int64_t columns, int64_t groups) {
    Add(std::move(name), rows, columns, Split::kRows, groups);
  }
  void Columns(std::string name, int64_t rows, int64_t columns, int64_t groups) {
    Add(std::move(name), rows, columns, Split::kColumns, groups);
  }

  void Attention(const std::string& at) {
    const int64_t h = spec_.num_heads;
    Whole(at + "q_a_proj.weight", spec_.q_rank, spec_.hidden_size);
    Whole(at + "q_a_layernorm.weight", spec_.q_rank);
    Rows(at + "q_b_proj.weight", h * (spec_.nope_dim + spec_.rope_dim), spec_.q_rank, h);
    Whole(at + "kv_a_proj_with_mqa.weight", spec_.kv_rank + spec_.rope_dim, spec_.hidden_size);
    Whole(at + "kv_a_layernorm.weight", spec_.kv_rank);
    Rows(at + "kv_b_proj.weight", h * (spec_.nope_dim + spec_.value_dim), spec_.kv_rank, h);
    Columns(at + "o_proj.weight", spec_.hidden_size, h * spec_.value_dim, h);
  }

  void FeedForward(const std::string& at, int64_t inner) {
    Rows(at + "gate_proj.weight", inner, spec_.hidden_size, inner);
    Rows(at + "up_proj.weight", inner, spec_.hidden_size, inner);
    Columns(at + "down_proj.weight", spec_.hidden_size, inner, inner);
  }

  void Experts(const std::string& at) {
    Whole(at + "gate.weight", spec_.num_experts, spec_.hidden_size);
    Whole(at + "gate.e_score_correction_bias", spec_.num_experts);
    for (int64_t e = 0; e < spec_.num_experts; ++e) {
      const std::string expert = absl::StrCat(at, "experts.", e, ".");
      const auto add = [&](const char* name, int64_t rows, int64_t columns) {
        Add(expert + name, rows, columns, Split::kOwner, spec_.num_experts, e);
      };
      add("gate_proj.weight", spec_.expert_size, spec_.hidden_size);
      add("up_proj.weight", spec_.expert_size, spec_.hidden_size);
      add("down_proj.weight", spec_.hidden_size, spec_.expert_size);
    }
    if (spec_.num_shared_experts > 0) {
      FeedForward(at + "shared_experts.", spec_.num_shared_experts * spec_.expert_size);
    }
  }

  void NextUnit() { ++unit_; }
  std::vector<TensorRule> Take() { return std::move(tensors_); }

 private:
  void Add(std::string name, int64_t rows, int64_t columns, Split split, int64_t groups,
           int64_t group = 0) {
    tensors_.push_back({std::move(name), rows, columns, split, groups, group, unit_});
  }

  const MoeSpec& spec_;
  std::vector<TensorRule> tensors_;
  int unit_ = 0;
};

}  // namespace

std::vector<std::string> MoeShapeNames() {
  std::vector<std::string> names;
  for (const auto& [name, spec] : Shapes()) names.push_back(name);
  return names;
}

MoeSpec MoeShape(const std::string& name) { return Shapes().at(name); }

std::vector<TensorRule> MoeTensors(const MoeSpec& spec) {
  TensorList list(spec);
  list.Rows("model.embed_tokens.weight", spec.vocab_size, spec.hidden_size, spec.vocab_size);
  for (int64_t i = 0; i < spec.num_layers; ++i) {
    list.NextUnit();
    const std::string layer = absl::StrCat("model.layers.", i, ".");
    list.Whole(layer + "input_layernorm.weight", spec.hidden_size);
    list.Attention(layer + "self_attn.");
    list.Whole(layer + "post_attention_layernorm.weight", spec.hidden_size);
    if (i < spec.num_dense_layers) {
      list.FeedForward(layer + "mlp.", spec.intermediate_size);
    } else {
      list.Experts(layer + "mlp.");
    }
  }
  list.NextUnit();
  list.Whole("model.norm.weight", spec.hidden_size);
  list.Rows("lm_head.weight", spec.vocab_size, spec.hidden_size, spec.vocab_size);
  return list.Take();
}

}  // namespace tandem::plan
