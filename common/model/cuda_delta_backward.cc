// The pass computes what the forward pass did again and then goes back. The recurrence itself
// needs nothing of the states on its way back (cuda::DeltaReverse). The gradients of q and k do: those of
// a chunk's tokens follow from the states S and their gradients D at its boundaries, by products of
// matrices of all chunks at once. Within a chunk, with R[t, i] the decays behind i up to t, A those from
// the boundary on and B those up to the next one, u = beta (v - S^T k), e = -beta du, and g the gradients
// of results:
//
//   X = (g u^T) R,  Y = (e u^T) R below the diagonal
//   dq = A g S^T + X k
//   dk = B u D^T + A e S^T + X^T q + (Y + Y^T) k
//
// A decay scales what passes it, from an earlier token or the boundary before to its own token or a later
// one or the boundary behind, so the gradient of its logarithm is the sum of these products. With
// W = X (q k^T) + Y (k k^T), element by element:
//
//   d log a_t = sum of W[j, i] over i < t <= j  +  sum of (A g S^T) q + (A e S^T) k over j >= t
//             + sum of (B u D^T) k over i < t   +  A_last sum(S D)
//
// A sum of differences from token to token would cost less, and lose what little a strong decay leaves.
#include "common/model/cuda_delta_backward.h"

#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <c10/cuda/CUDAException.h>

#include <algorithm>
#include <vector>

#include "common/model/cuda_delta_forward.h"
#include "common/model/cuda_tensor.h"
#include "common/model/kernels/cuda/delta_rule.h"

namespace tandem::model::device {
namespace {

constexpr int64_t kChunk = cuda::kDeltaChunk;

// One pass.
class DeltaBackwardPass {
 public:
  DeltaBackwardPass(const DeltaSpec& spec, const DeltaTensors& tensors, const DeltaPlaces& places)
      : tensors_(tensors),
        places_(places),
        shape_(CudaDeltaShapeOf(spec, tensors)),
        batch_(CudaDeltaBatchOf(places)),
        stream_(CurrentStream(tensors.projected.device())),
        // Places without a row stay zero, so that they add nothing to products.
        inputs_(shape_, places.num_chunks * kChunk, tensors.projected, /*zero=*/true) {
    batch_.place_starts = batch_.row_starts + places.num_sequences + 1;
    chunk_sequence_ = batch_.place_starts + places.num_sequences + 1;
  }

  DeltaTensors Run(const at::Tensor& grad_out) {
    const at::Tensor& projected = tensors_.projected;
    const int64_t num_places = places_.num_chunks * kChunk;
    DeltaTensors gradients;
    gradients.projected = at::empty(projected.sizes(), projected.options().requires_grad(false));
    cuda::DeltaConvolve convolve{shape_, batch_, inputs_.pointers()};
    C10_CUDA_CHECK(cuda::Launch(convolve, stream_));
    values_ = WorkingZeros({num_places, shape_.value_size()}, projected);
    error_ = WorkingZeros({num_places, shape_.value_size()}, projected);
    du_ = WorkingZeros({num_places, shape_.value_size()}, projected);
    a_log_sums_ = WorkingFloats({places_.num_chunks, shape_.num_value_heads}, projected);
    dt_bias_sums_ = WorkingFloats({places_.num_chunks, shape_.num_value_heads}, projected);
    const int64_t at_once = KeyHeadsAtOnce();
    const bool together = at_once >= shape_.num_key_heads;
    at::Tensor boundaries;
    // Heads that take turns go through the recurrence again for their boundaries.
    Advance(0, shape_.num_key_heads, together ? &boundaries : nullptr);
    gradients.norm = UndoOutput(grad_out, gradients.projected);
    std::vector<at::Tensor> grad_q;
    std::vector<at::Tensor> grad_k;
    for (int64_t first = 0; first < shape_.num_key_heads; first += at_once) {
      const int64_t count = std::min(at_once, shape_.num_key_heads - first);
      if (!together) Advance(first, count, &boundaries);
      UndoRecurrence(first, count, boundaries, gradients.projected, grad_q, grad_k);
      boundaries.reset();
    }
    gradients.a_log = SumOf(a_log_sums_, tensors_.a_log);
    gradients.dt_bias = SumOf(dt_bias_sums_, tensors_.dt_bias);
    gradients.convolution =
        UndoConvolution(at::cat(grad_q, 1), at::cat(grad_k, 1), gradients.projected);
    return gradients;
  }

 private:
  // Returns the sum of the first dim's parts in the type and shape of `like`.
  static at::Tensor SumOf(const at::Tensor& parts, const at::Tensor& like) {
    return parts.sum(0).to(like.scalar_type()).view(like.sizes());
  }

  int64_t KeyHeadsAtOnce() const {
    const int64_t bytes = 2 * places_.num_chunks * shape_.group() * shape_.value_dim *
                          shape_.key_dim * static_cast<int64_t>(sizeof(float));
    const int64_t most =
        std::clamp<int64_t>(places_.boundary_bytes / bytes, 1, shape_.num_key_heads);
    // In turns of about the same size.
    const int64_t turns = (shape_.num_key_heads + most - 1) / most;
    return (shape_.num_key_heads + turns - 1) / turns;
  }

  // The recurrence of the value heads of some key heads. boundaries: null, or where to keep the states.
  // Only of all heads at once are the results kept.
  void Advance(int64_t first, int64_t count, at::Tensor* boundaries) {
    cuda::DeltaAdvance advance{shape_, batch_, inputs_.pointers()};
    advance.first_head = static_cast<int>(first * shape_.group());
    advance.num_heads = static_cast<int>(count * shape_.group());
    at::Tensor unused;
    const bool has_all = advance.num_heads == shape_.num_value_heads;
    if (has_all) {
      advance.out = values_.mutable_data_ptr<float>();
    } else {
      unused = at::empty_like(values_);
      advance.out = unused.mutable_data_ptr<float>();
    }
    advance.error = error_.mutable_data_ptr<float>();
    if (boundaries != nullptr) {
      *boundaries = WorkingFloats(
          {places_.num_chunks, advance.num_heads, shape_.value_dim, shape_.key_dim}, values_);
      advance.boundaries = boundaries->mutable_data_ptr<float>();
    }
    C10_CUDA_CHECK(cuda::Launch(advance, stream_));
  }

  // Returns the gradient of the norm's weight.
  at::Tensor UndoOutput(const at::Tensor& grad_out, at::Tensor& grad_projected) {
    cuda::DeltaOutputBackward output{shape_, batch_};
    output.values = values_.mutable_data_ptr<float>();
    output.grad_out = grad_out.const_data_ptr();
    output.grad_projected = grad_projected.mutable_data_ptr();
    const at::Tensor sums = WorkingFloats({cuda::SumBlocks(output), shape_.value_dim}, values_);
    output.norm_sums = sums.mutable_data_ptr<float>();
    C10_CUDA_CHECK(cuda::Launch(output, stream_));
    return SumOf(sums, tensors_.norm);
  }

  // Appends the gradients of q and k, [chunks, count, kChunk, key_dim].
  void UndoRecurrence(int64_t first, int64_t count, const at::Tensor& boundaries,
                      at::Tensor& grad_projected, std::vector<at::Tensor>& grad_q,
                      std::vector<at::Tensor>& grad_k) {
    const int64_t heads = count * shape_.group();
    cuda::DeltaReverse reverse{shape_, batch_, inputs_.pointers()};
    reverse.first_head = static_cast<int>(first * shape_.group());
    reverse.num_heads = static_cast<int>(heads);
    reverse.grad_out = values_.const_data_ptr<float>();
    reverse.du = du_.mutable_data_ptr<float>();
    reverse.boundaries = boundaries.const_data_ptr<float>();
    const at::Tensor grad_boundaries = WorkingFloats(boundaries.sizes(), boundaries);
    reverse.grad_boundaries = grad_boundaries.mutable_data_ptr<float>();
    const at::Tensor products =
        WorkingFloats({places_.num_chunks * heads, cuda::DeltaTiles(shape_)}, boundaries);
    reverse.products = products.mutable_data_ptr<float>();
    C10_CUDA_CHECK(cuda::Launch(reverse, stream_));

    const at::Tensor log_decay =
        UndoChunks(first, count, {boundaries, grad_boundaries, products.sum(1)}, grad_q, grad_k);
    cuda::DeltaGatesBackward gates{shape_, batch_, inputs_.pointers()};
    gates.first_head = reverse.first_head;
    gates.num_heads = reverse.num_heads;
    gates.num_chunks = places_.num_chunks;
    gates.chunk_sequence = chunk_sequence_;
    gates.error = error_.const_data_ptr<float>();
    gates.du = reverse.du;
    gates.log_decay = log_decay.const_data_ptr<float>();
    gates.grad_projected = grad_projected.mutable_data_ptr();
    gates.a_log_sums = a_log_sums_.mutable_data_ptr<float>();
    gates.dt_bias_sums = dt_bias_sums_.mutable_data_ptr<float>();
    C10_CUDA_CHECK(cuda::Launch(gates, stream_));
  }

  // [chunks * heads, kChunk, dim] of some heads of what lies as [places, all heads, dim].
  at::Tensor ByHead(const at::Tensor& x, int64_t all, int64_t first, int64_t heads) const {
    return x.view({places_.num_chunks, kChunk, all, x.size(1) / all})
        .narrow(2, first, heads)
        .transpose(1, 2)
        .contiguous()
        .view({places_.num_chunks * heads, kChunk, x.size(1) / all});
  }

  struct Boundaries {
    at::Tensor states;    // [chunks, heads, value_dim, key_dim]
    at::Tensor grads;     // likewise
    at::Tensor products;  // [chunks * heads]: of both, summed
  };

  // Appends the gradients of q and k; returns those of decays' logarithms, [chunks * heads, kChunk].
  at::Tensor UndoChunks(int64_t first, int64_t count, const Boundaries& boundaries,
                        std::vector<at::Tensor>& grad_q, std::vector<at::Tensor>& grad_k) const {
    const int64_t chunks = places_.num_chunks;
    const int64_t group = shape_.group();
    const int64_t heads = count * group;
    const int64_t first_head = first * group;
    const int64_t all = shape_.num_value_heads;
    const at::Tensor ratios = WorkingFloats({chunks * heads, kChunk, kChunk}, values_);  // R
    cuda::DeltaRatios of{chunks, shape_.num_value_heads};
    of.first_head = static_cast<int>(first_head);
    of.num_heads = static_cast<int>(heads);
    of.decay = inputs_.decay.const_data_ptr<float>();
    of.ratios = ratios.mutable_data_ptr<float>();
    C10_CUDA_CHECK(cuda::Launch(of, stream_));

    // All [chunks * heads, kChunk, ..]. What ByHead() returns may be the tensor itself: it is not changed.
    const at::Tensor beta = ByHead(inputs_.beta, all, first_head, heads);
    const at::Tensor first_decay = ByHead(inputs_.decay, all, first_head, heads).narrow(1, 0, 1);
    const at::Tensor from_start = ratios.narrow(2, 0, 1) * first_decay;         // A
    const at::Tensor to_end = ratios.narrow(1, kChunk - 1, 1).transpose(1, 2);  // B
    const at::Tensor g = ByHead(values_, all, first_head, heads);
    const at::Tensor u = ByHead(error_, all, first_head, heads) * beta;
    const at::Tensor e = ByHead(du_, all, first_head, heads) * beta.neg();
    const at::Tensor states = boundaries.states.view({-1, shape_.value_dim, shape_.key_dim});
    const at::Tensor grads = boundaries.grads.view({-1, shape_.value_dim, shape_.key_dim});
    const at::Tensor u_across = u.transpose(1, 2);
    const at::Tensor x = at::bmm(g, u_across) * ratios;
    const at::Tensor y = (at::bmm(e, u_across) * ratios).tril(-1);
    const at::Tensor of_results = at::bmm(g * from_start, states);
    const at::Tensor of_errors = at::bmm(e * from_start, states);
    const at::Tensor of_updates = at::bmm(u * to_end, grads);

    // [chunks * count, kChunk, key_dim]; a key head serves `group` value heads.
    const at::Tensor q = ByHead(inputs_.q, shape_.num_key_heads, first, count);
    const at::Tensor k = ByHead(inputs_.k, shape_.num_key_heads, first, count);
    const auto grouped = [&](const at::Tensor& of_heads) {
      return of_heads.view({chunks * count, group, kChunk, of_heads.size(2)});
    };
    const at::Tensor k_across = k.transpose(1, 2);
    const at::Tensor passed = grouped(x) * at::bmm(q, k_across).unsqueeze(1) +
                              grouped(y) * at::bmm(k, k_across).unsqueeze(1);  // W
    const at::Tensor before_boundary =
        (grouped(of_results) * q.unsqueeze(1) + grouped(of_errors) * k.unsqueeze(1)).sum(3);
    const at::Tensor behind_boundary = (grouped(of_updates) * k.unsqueeze(1)).sum(3);
    // Sums up to a token, without it, and from a token on, as products: cumsum() of a GPU does not promise
    // one order.
    const at::Tensor ones = at::ones({kChunk, kChunk}, values_.options());
    const at::Tensor until = ones.triu(1);
    const at::Tensor log_decay =
        at::matmul(passed, until).tril().sum(2) + at::matmul(before_boundary, ones.tril()) +
        at::matmul(behind_boundary, until) +
        (from_start.narrow(1, kChunk - 1, 1).view({-1}) * boundaries.products)
            .view({chunks * count, group, 1});

    const at::Tensor xs = grouped(x).sum(1);
    const at::Tensor below = grouped(y).sum(1);
    const at::Tensor of_q = grouped(of_results).sum(1) + at::bmm(xs, k);
    const at::Tensor of_k = grouped(of_errors).sum(1) + grouped(of_updates).sum(1) +
                            at::bmm(xs.transpose(1, 2), q) +
                            at::bmm(below + below.transpose(1, 2), k);
    const std::vector<int64_t> sizes = {chunks, count, kChunk, shape_.key_dim};
    grad_q.push_back(of_q.view(sizes));
    grad_k.push_back(of_k.view(sizes));
    return log_decay.contiguous();
  }

  // Returns the gradient of the weights.
  at::Tensor UndoConvolution(const at::Tensor& grad_q, const at::Tensor& grad_k,
                             at::Tensor& grad_projected) const {
    const at::Tensor grad_sums = WorkingFloats({places_.num_rows, shape_.channels()}, values_);
    cuda::DeltaConvolveBackward convolve{shape_, batch_, inputs_.pointers()};
    convolve.grad_q = grad_q.const_data_ptr<float>();
    convolve.grad_k = grad_k.const_data_ptr<float>();
    convolve.du = du_.const_data_ptr<float>();
    convolve.grad_sums = grad_sums.mutable_data_ptr<float>();
    C10_CUDA_CHECK(cuda::Launch(convolve, stream_));
    cuda::DeltaWeightsBackward weights{shape_, batch_};
    weights.grad_sums = convolve.grad_sums;
    weights.grad_projected = grad_projected.mutable_data_ptr();
    const at::Tensor sums = WorkingFloats(
        {cuda::WeightBlocks(weights), shape_.channels() * shape_.kernel_size}, values_);
    weights.weight_sums = sums.mutable_data_ptr<float>();
    C10_CUDA_CHECK(cuda::Launch(weights, stream_));
    return SumOf(sums, tensors_.convolution);
  }

  const DeltaTensors& tensors_;
  const DeltaPlaces& places_;
  const cuda::DeltaShape shape_;
  cuda::DeltaBatch batch_;
  const int32_t* chunk_sequence_ = nullptr;
  cudaStream_t const stream_;
  const DeltaWorkingInputs inputs_;
  at::Tensor values_;  // [places, value_size]: the results, then their gradients
  at::Tensor error_;   // likewise: v - S^T k
  at::Tensor du_;      // likewise
  at::Tensor a_log_sums_;
  at::Tensor dt_bias_sums_;
};

}  // namespace

DeltaTensors DeltaBackwardOf(const DeltaSpec& spec, const DeltaTensors& tensors,
                             const DeltaPlaces& places, const at::Tensor& grad_out) {
  return DeltaBackwardPass(spec, tensors, places).Run(grad_out);
}

}  // namespace tandem::model::device
