// Transformer: the forward pass of a decoder-only model as a list of stages, shared by trainer and
// rollout. A stage is a function of a boundary tensor, the residual stream, and of the unit's
// parameters, in some models of more that earlier stages made (carried_tensors.h); constructing the
// model allocates nothing. Stage 0 embeds, stages 1 to num_layers are the layers, and the last is the
// head:
//
//   Transformer model(spec);
//   Rotary rotary = model.MakeRotary(positions);
//   at::Tensor x = model.Embed(params, token_ids, positions);
//   for (int64_t i = 0; i < spec.num_layers(); ++i) {
//     x = model.Block(params, i, x, rotary, attention);
//   }
//   at::Tensor hidden = model.FinalNorm(params, x);
//   LogProbs out = model.HeadLogProbs(params, hidden, targets, temperatures);
//
// Over a tensor-parallel group each rank's provider holds its part of every parameter, and boundary
// tensors are whole and identical on every rank: a block sums over the ranks after attention and
// after the feed-forward layer, and in the backward pass before them (1909.08053). The head never
// materializes the logits of the whole vocabulary. A failed collective throws CollectiveError
// (tensor_collectives.h).
//
// Every function is differentiable in grad mode and records no graph otherwise, unless noted.
// Thread-compatible: const functions may run in several threads at once.
#ifndef TANDEM_COMMON_MODEL_TRANSFORMER_H_
#define TANDEM_COMMON_MODEL_TRANSFORMER_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "common/comm/process_group.h"
#include "common/model/attention.h"
#include "common/model/carried_tensors.h"
#include "common/model/head.h"
#include "common/model/model_spec.h"
#include "common/model/norm.h"
#include "common/model/parameter_provider.h"
#include "common/model/parameter_table.h"
#include "common/model/recomputation.h"
#include "common/model/rotary.h"
#include "common/model/rotary_tables.h"
#include "common/model/router_pass.h"

namespace tandem::model {

class Transformer {
 public:
  // `tensor_group`, the ranks that split each layer, and `expert_group`, those that split the experts
  // (expert_exchange.h), must outlive it; null: not split. If both are one object, its ranks hold whole
  // experts and parts of everything else, and exchange no rows: they have the same tokens.
  explicit Transformer(ModelSpec spec, const UnitLimits& limits = {},
                       comm::ProcessGroup* tensor_group = nullptr,
                       comm::ProcessGroup* expert_group = nullptr);

  const ModelSpec& spec() const { return spec_; }
  const ParameterTable& table() const { return table_; }
  // The ranks that split the model; null if it is not split.
  comm::ProcessGroup* tensor_group() const { return tensor_group_; }
  // The ranks that split the experts; null if each rank has all of them. Block() then exchanges rows:
  // all of these ranks call it together, each with at least one token.
  comm::ProcessGroup* expert_group() const { return expert_group_; }

  // positions: int64 [num_tokens]. lengths: int64 [num_tokens] on the CPU, the tokens of each one's
  // whole sequence; undefined: none is longer than LongestGeneration() (rotary_frequencies.h).
  Rotary MakeRotary(const at::Tensor& positions, const at::Tensor& lengths = {}) const;

  // What the model carries besides the residual stream, and its values in a pass: one for each, undefined
  // where no stage has made it yet.
  const std::vector<CarriedTensor>& carried_tensors() const { return carried_; }
  using Carried = std::vector<at::Tensor>;

  // token_ids: int64 [num_tokens], each in [0, vocab_size); positions: int64 [num_tokens], used by a
  // model with learned positions alone. Returns [num_tokens, hidden]. carried: null of a model that carries
  // nothing but rows of images; else begins again, with what the embedding makes.
  at::Tensor Embed(const ParameterProvider& params, const at::Tensor& token_ids,
                   const at::Tensor& positions, Carried* carried = nullptr) const;

  // `in`, result: [num_tokens, hidden]. Registers with `recomputation`, if given, the inputs of
  // products and attention that norms, rotary embedding and activations produce; the backward pass then
  // keeps only results of products and of attention. `routers` may be null. The layer reads `carried`, as
  // of Embed(), and adds what it makes: its own keys and values, unless the attention keeps them.
  Residual Block(const ParameterProvider& params, int64_t layer, const Residual& in,
                 const Rotary& rotary, Attention& attention, Recomputation* recomputation = nullptr,
                 const RouterPass* routers = nullptr, Carried* carried = nullptr) const;
  // The same with the residual stream as one tensor; the same bits.
  at::Tensor Block(const ParameterProvider& params, int64_t layer, const at::Tensor& x,
                   const Rotary& rotary, Attention& attention,
                   Recomputation* recomputation = nullptr, const RouterPass* routers = nullptr,
                   Carried* carried = nullptr) const;
  // Embed() and all layers, one after the other.
  at::Tensor Blocks(const ParameterProvider& params, const at::Tensor& token_ids,
                    const at::Tensor& positions, const Rotary& rotary, Attention& attention,
                    const RouterPass* routers = nullptr) const;

  // Returns x itself if the model has no final norm.
  at::Tensor FinalNorm(const ParameterProvider& params, const at::Tensor& x) const;

  // hidden: [num_rows, hidden] after FinalNorm. Returns float32 logits [num_rows, vocab]; over a
  // tensor-parallel group, those of this rank's part of the vocabulary. Not differentiable.
  at::Tensor Logits(const ParameterProvider& params, const at::Tensor& hidden) const;

  // Log-probs and entropies of `targets` (int64 [num_rows]) under logits divided by `temperatures`
  // (float32 [num_rows], each > 0). Computes in chunks of rows, so the full [num_rows, vocab]
  // logits never exist, neither here nor in the backward pass, which recomputes them. Gradients
  // flow to hidden and to the head's parameters from both results.
  LogProbs HeadLogProbs(const ParameterProvider& params, const at::Tensor& hidden,
                        const at::Tensor& targets, const at::Tensor& temperatures) const;

  // The same without a graph, and with LogProbs::sum_pi_squared.
  LogProbs HeadLogProbsAndSquares(const ParameterProvider& params, const at::Tensor& hidden,
                                  const at::Tensor& targets, const at::Tensor& temperatures) const;

  // For a model with a value head: one scalar per row, float32 [num_rows], computed in float32.
  at::Tensor Values(const ParameterProvider& params, const at::Tensor& hidden) const;

 private:
  // Which of the carried tensors a layer reads and makes; -1: none.
  struct CarriedOfLayer {
    int kv = -1;
    int made_kv = -1;
    int input = -1;
  };

  // The tokens' rows of a table, of whose rows this rank has `own`.
  at::Tensor LookUp(const ParameterProvider& params, int table, Range own,
                    const at::Tensor& token_ids, const char* tag) const;
  // x: the embedding. Fills in the inputs of the layers.
  void MakeLayerInputs(const ParameterProvider& params, const at::Tensor& token_ids,
                       const at::Tensor& x, Carried& carried) const;
  LmHead HeadOf(const ParameterProvider& params) const;

  ModelSpec spec_;
  comm::ProcessGroup* tensor_group_;  // null: not split
  comm::ProcessGroup* expert_group_;  // null: not split
  ParameterTable table_;
  std::vector<QkvShape> heads_;  // of each layer, on this rank
  Range vocabulary_;             // of this rank
  std::vector<CarriedTensor> carried_;
  std::vector<CarriedOfLayer> carried_of_layers_;  // empty: nothing is carried
  RotaryTables rotary_tables_;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_TRANSFORMER_H_
