#include "common/model/layers/expert_spec.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tandem::model {
namespace {

RouterParameters DeclareRouter(const ExpertSpec& spec, int64_t hidden_size,
                               const std::string& prefix, ParameterDeclarations& declarations) {
  const auto bias = [&](const char* name) {
    return Single(Whole(prefix + name, {spec.num_experts}), ParameterRole::kBias, kReplicate);
  };
  RouterParameters at;
  at.weight = declarations.Add(Single(Whole(prefix + "weight", {spec.num_experts, hidden_size}),
                                      ParameterRole::kMatrix, kReplicate));
  if (spec.routing.bias) at.bias = declarations.Add(bias("bias"));
  if (spec.routing.correction_bias) {
    Parameter correction = bias("e_score_correction_bias");
    correction.trainable = false;
    correction.corrects_router = true;
    correction.in_float32 = true;
    at.correction_bias = declarations.Add(std::move(correction));
  }
  if (spec.routing.norm.has_value()) {
    at.norm = DeclareNorm(*spec.routing.norm, hidden_size, prefix + "norm.", declarations);
  }
  if (spec.routing.expert_scales) {
    at.expert_scales = declarations.Add(Single(
        Whole(prefix + "per_expert_scale", {spec.num_experts}), ParameterRole::kNorm, kReplicate));
  }
  return at;
}

// Declares the matrices of one expert, of which this rank has the inner units `part`: none if
// another rank holds the expert. Adds those that it has to `at`.
class ExpertDeclarer {
 public:
  // `whole`: no rank has a part of an expert.
  ExpertDeclarer(ExpertParameters& at, ParameterDeclarations& declarations, bool held, bool whole)
      : at_(at),
        declarations_(declarations),
        held_(held),
        by_rows_(whole ? kReplicate : kShardRows),
        by_columns_(whole ? kReplicate : kShardColumns) {}

  void Declare(const ExpertSpec& spec, int64_t hidden, const std::string& expert, Range inner) {
    const int64_t size = spec.intermediate_size;
    Add(Stack(expert + "gate_up_proj.weight",
              {Rows(expert + "gate_proj.weight", {size, hidden}, inner),
               Rows(expert + "up_proj.weight", {size, hidden}, inner)},
              ParameterRole::kMatrix, by_rows_),
        at_.gate_up.weights);
    if (spec.bias) {
      Add(Stack(expert + "gate_up_proj.bias",
                {Rows(expert + "gate_proj.bias", {size}, inner),
                 Rows(expert + "up_proj.bias", {size}, inner)},
                ParameterRole::kBias, by_rows_),
          at_.gate_up.biases);
    }
    Add(Single(Part(expert + "down_proj.weight", {hidden, size}, 1, inner), ParameterRole::kMatrix,
               by_columns_),
        at_.down.weights);
    if (spec.bias) {
      const Range outputs = held_ ? Range{0, hidden} : Range{};
      Add(Single(Rows(expert + "down_proj.bias", {hidden}, outputs), ParameterRole::kBias,
                 kReplicate),
          at_.down.biases);
    }
  }

 private:
  void Add(Parameter parameter, std::vector<int>& held) {
    parameter.of_expert = true;
    const int index = declarations_.Add(std::move(parameter));
    if (held_) held.push_back(index);
  }

  ExpertParameters& at_;
  ParameterDeclarations& declarations_;
  const bool held_;
  const Placement by_rows_, by_columns_;
};

}  // namespace

ExpertParameters DeclareExperts(const ExpertSpec& spec, int64_t hidden_size,
                                const std::string& prefix, TensorParallel parallel,
                                ExpertParallel split, ParameterDeclarations& declarations) {
  const std::string block = prefix + "mlp.";
  const Range part =
      PartOf(spec.intermediate_size, split.of_tensor_ranks ? TensorParallel() : parallel);
  const Range held = PartOf(spec.num_experts, {split.rank, split.size});

  ExpertParameters at;
  at.router = DeclareRouter(spec, hidden_size, block + "gate.", declarations);
  for (int64_t e = 0; e < spec.num_experts; ++e) {
    const bool is_held = held.begin <= e && e < held.end;
    ExpertDeclarer(at, declarations, is_held, split.of_tensor_ranks)
        .Declare(spec, hidden_size, absl::StrCat(block, "experts.", e, "."),
                 is_held ? part : Range{});
  }
  if (spec.shared_intermediate_size > 0) {
    at.shared = DeclareFeedForward(spec.Shared(), hidden_size, block + "shared_expert.", parallel,
                                   declarations);
    if (spec.shared_gate) {
      at.shared_gate =
          declarations.Add(Single(Whole(block + "shared_expert_gate.weight", {1, hidden_size}),
                                  ParameterRole::kMatrix, kReplicate));
    }
  }
  return at;
}

}  // namespace tandem::model
