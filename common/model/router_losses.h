// RouterLosses: the auxiliary losses of a model's routers over one micro-batch.
//
//   RouterLosses losses({.balance = 0.001, .z = 0.0001}, num_experts, x.device());
//   losses.Begin(token_weights, total_rows);
//   logits = losses.Attach(logits);         // in the forward pass of each layer with experts ...
//   losses.Add(logits, experts);            // ... and once, not when the layer is computed again
//   AllReduce(losses.sums());               // over the ranks that have tokens of their own
//   losses.Finish();                        // before the backward pass
//   Backward();                             // logits get their gradients of the losses
//   const auto [balance, z] = losses.Take();
//
// Rows are tokens times layers. The balance loss is that of transformers' load_balancing_loss_func
// (2101.03961): E sum over experts e of f_e P_e, with f_e the rows that chose e over all rows, and P_e
// the mean over all rows of e's softmax over all logits. It takes all layers together; of an even
// load it is top_k. f_e has no gradient. The softmax is over the logits of any router, also one that
// weighs by sigmoids; f counts the experts that were chosen, with groups and corrections. The z loss
// (2202.08906) is the mean over all rows of the square of the logits' log-sum-exp.
//
// f is that of one micro-batch of all ranks. A micro-batch counts by its share of `total_rows`, so the
// z loss depends on no split, and the balance loss only on which tokens are in a micro-batch
// together, not on their rank.
//
// Needed in the backward pass, so it outlives the graph. Single-threaded.
#ifndef TANDEM_COMMON_MODEL_ROUTER_LOSSES_H_
#define TANDEM_COMMON_MODEL_ROUTER_LOSSES_H_

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tandem::model {

// Factors of the losses in the loss that is minimised.
struct RouterLossFactors {
  double balance = 0;
  double z = 0;

  bool any() const { return balance != 0 || z != 0; }
};

class RouterLosses {
 public:
  struct Values {
    double balance = 0;
    double z = 0;
  };

  // Sums are on `device`.
  RouterLosses(const RouterLossFactors& factors, int64_t num_experts, at::Device device);

  // token_weights: float32 [num_tokens]: how often each token counts, 0 for padding. total_rows: of
  // all micro-batches whose losses are one sum; 0: those of this one. Undefined weights: no tokens.
  void Begin(at::Tensor token_weights, double total_rows);

  // Adds a layer's rows. logits: [num_tokens, num_experts]; experts: int64 [num_tokens, top_k].
  void Add(const at::Tensor& logits, const at::Tensor& experts);
  // Returns the logits; their gradient is then the sum of the returned tensor's and the losses'.
  at::Tensor Attach(const at::Tensor& logits) const;

  // float64, the rank's: add up over ranks before Finish().
  at::Tensor& sums() { return sums_; }
  void Finish();

  // The losses, without factors, of the micro-batches since the last call.
  Values Take();

 private:
  friend struct RouterLossFunction;
  // What the losses add to the gradient of logits that were attached.
  at::Tensor Gradient(const at::Tensor& logits) const;

  const RouterLossFactors factors_;
  const int64_t num_experts_;
  at::Tensor token_weights_;  // undefined: no tokens
  double total_rows_ = 0;
  at::Tensor sums_;    // [2 num_experts + 2]: choices, shares, z, rows
  at::Tensor values_;  // [2]
  // As of Finish(): factors of a row's softmax.
  at::Tensor balance_gradient_;  // [num_experts]
  at::Tensor z_gradient_;        // []
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_ROUTER_LOSSES_H_
