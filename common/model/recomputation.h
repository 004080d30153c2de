// Recomputation: frees results of a stage that are cheap to compute between the stage's forward and
// backward pass (selective activation checkpointing).
//
//   Recomputation recomputation;
//   y = transformer.Block(params, layer, x, rotary, attention, &recomputation);
//   recomputation.Drop();     // the forward pass continues with other stages
//   ...
//   recomputation.Restore();  // parameters and x hold the forward pass's values again
//   torch::autograd::grad({y}, {x});
//
// The tensors that autograd saved share the results' storages, and these storages lose and regain
// their memory: the graph is unchanged, and gradients have the same bits, because the same kernels
// recompute the same inputs. Single-threaded.
#ifndef TANDEM_COMMON_MODEL_RECOMPUTATION_H_
#define TANDEM_COMMON_MODEL_RECOMPUTATION_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace tandem::model {

class Recomputation {
 public:
  // Returns the tensors of one computation, in the order of Add().
  using Compute = std::function<std::vector<at::Tensor>()>;

  // `results` share their storages with no tensor that is read between Drop() and Restore().
  // `compute` recomputes them; it runs without recording a graph, and its inputs must then hold the
  // values of the forward pass.
  void Add(const std::vector<at::Tensor>& results, Compute compute);

  // Frees the results. Discards those that nobody saved for the backward pass.
  void Drop();
  // Recomputes the results. Throws what the computations throw, such as c10::OutOfMemoryError.
  void Restore();

 private:
  struct Step {
    std::vector<at::Tensor> results;  // without a graph
    Compute compute;
  };
  std::vector<Step> steps_;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_RECOMPUTATION_H_
