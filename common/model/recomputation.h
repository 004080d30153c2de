// Recomputation: results of a stage that are cheap to compute, and whose memory is therefore given
// back between the stage's forward and its backward pass.
//
//   Recomputation recomputation;
//   y = transformer.Block(params, layer, x, rotary, attention, &recomputation);
//   recomputation.Drop();                    // the forward pass goes on
//   ...
//   recomputation.Restore();                 // parameters and x are there again
//   torch::autograd::grad({y}, ...);
//
// What autograd saved are tensors of the same storages, and it is these storages that lose and
// regain their memory: the graph stays as it is, and gradients are the same bit for bit, for the
// same kernels compute the same inputs. One thread.
#ifndef TANDEM_COMMON_MODEL_RECOMPUTATION_H_
#define TANDEM_COMMON_MODEL_RECOMPUTATION_H_

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace tandem::model {

class Recomputation {
 public:
  // The tensors of one computation, in the order of Add().
  using Compute = std::function<std::vector<at::Tensor>()>;

  // `results` share their storages with no tensor that is read between Drop() and Restore().
  // `compute` answers them anew; it runs without recording a graph, and what it reads must hold the
  // values of the forward pass then.
  void Add(const std::vector<at::Tensor>& results, Compute compute);

  // Frees the results. Those that nobody saved for the backward pass are forgotten.
  void Drop();
  // Computes them again. Throws what the computations throw, c10::OutOfMemoryError among it.
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
