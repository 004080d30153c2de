// Linear attention by the gated delta rule: packed sequences with their gradients, and steps over states
// as a rollout takes them.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/delta_attention.h"
#include "common/model/device_attention.h"
#include "common/model/device_delta_attention.h"
#include "common/model/model_cache.h"
#include "common/model/paged_attention.h"
#include "tools/tandem/gpu_check/kernels/comparison.h"

namespace tandem::gpu_check {
namespace {

constexpr int64_t kStateBlockSize = 16;

template <typename T>
T MadeOrThrow(absl::StatusOr<T> value) {
  if (!value.ok()) throw std::runtime_error(value.status().ToString());
  return *std::move(value);
}

model::DeltaTensors TensorsOf(const std::vector<at::Tensor>& in) {
  return {in[0], in[1], in[2], in[3], in[4]};
}

// projected, convolution, a_log, dt_bias, norm.
std::vector<at::Tensor> RandomInputs(const Comparer& comparer, const model::DeltaSpec& spec,
                                     int64_t tokens) {
  return {comparer.Random({tokens, spec.projected_size()}),
          comparer.Random({spec.convolved_size(), 1, spec.kernel_size}).mul_(0.6),
          comparer.Random({spec.num_value_heads}).mul_(0.7),
          comparer.Random({spec.num_value_heads}),
          comparer.Random({spec.value_dim}).mul_(0.3).add_(1.0)};
}

std::string NameOf(const model::DeltaSpec& spec) {
  return absl::StrCat(spec.num_key_heads, " and ", spec.num_value_heads, " heads of ", spec.key_dim,
                      " and ", spec.value_dim, ", convolution over ", spec.kernel_size);
}

// What `compute` gives, then the gradients of a sum with fixed weights.
template <typename Compute>
std::vector<at::Tensor> WithGradients(const std::vector<at::Tensor>& inputs, at::ScalarType type,
                                      const Compute& compute) {
  const at::AutoGradMode grad(true);
  std::vector<at::Tensor> leaves;
  for (const at::Tensor& x : inputs) {
    leaves.push_back(x.to(type).detach().clone().requires_grad_(true));
  }
  const at::Tensor out = compute(TensorsOf(leaves));
  const at::Tensor weights =
      at::sin(at::arange(out.numel(), out.options().dtype(at::kDouble))).view(out.sizes());
  std::vector<at::Tensor> results = {out.detach()};
  const at::Tensor loss = (out.to(at::kDouble) * weights).sum();
  for (const at::Tensor& gradient : torch::autograd::grad({loss}, leaves)) {
    results.push_back(gradient);
  }
  return results;
}

void ComparePackedDelta(Comparer& comparer, const model::DeltaSpec& spec,
                        const std::vector<int64_t>& lengths) {
  std::vector<int64_t> ends = {0};
  for (const int64_t length : lengths) ends.push_back(ends.back() + length);
  const at::Tensor cu_seqlens = at::tensor(ends, at::kLong);
  const std::vector<at::Tensor> inputs = RandomInputs(comparer, spec, ends.back());
  comparer.ExpectOurs(model::device::DeltaAttentionTakes(spec, TensorsOf(inputs)));
  const auto found =
      WithGradients(inputs, comparer.dtype(), [&](const model::DeltaTensors& tensors) {
        return model::DeltaAttention(spec, tensors, cu_seqlens);
      });
  const auto expected = WithGradients(inputs, at::kDouble, [&](const model::DeltaTensors& tensors) {
    return model::eager::DeltaAttention(spec, tensors, cu_seqlens);
  });
  const char* const names[] = {"results",         "gradient of the projection",
                               "of the weights",  "of the decays' rates",
                               "of their biases", "of the norm"};
  for (size_t i = 0; i < expected.size(); ++i) {
    // Gradients of parameters are sums over all rows.
    const double scale = 1 + expected[i].abs().max().item<double>();
    comparer.Expect(found[i].to(at::kDouble) / scale, expected[i] / scale,
                    comparer.dtype() == at::kFloat ? 2e-5 : 1e-2,
                    absl::StrCat(NameOf(spec), ": ", names[i]));
  }
}

// Two sequences in steps of several tokens and of one, rows that pad the batch beside them.
void CompareSteps(Comparer& comparer, const model::DeltaSpec& spec, int64_t length) {
  const std::vector<at::Tensor> inputs = RandomInputs(comparer, spec, 2 * length);
  const at::Tensor whole =
      model::DeltaAttention(spec, TensorsOf(inputs), at::tensor({int64_t{0}, length, 2 * length}));
  const at::Device device = comparer.device();
  model::PagedKvCache cache = MadeOrThrow(model::PagedKvCache::Create(
      {.num_layers = 2,
       .num_blocks = 2 * (length / kStateBlockSize + 1),
       .block_size = kStateBlockSize,
       .num_kv_heads = 1,
       .head_dim = 8,
       .dtype = comparer.dtype(),
       .device = device,
       .windows = {model::kNoCache, model::Window()},
       .states = {.layers = {spec, std::nullopt}, .count = 3, .dtype = comparer.dtype()}}));
  std::unique_ptr<model::DeviceAttention> on_device;
  if (device.is_cuda()) on_device = MadeOrThrow(model::CreateCudaAttention(cache, 1));
  std::vector<int32_t> blocks(2 * (length / kStateBlockSize + 1));
  std::iota(blocks.begin(), blocks.end(), 0);
  for (int64_t done = 0; done < length;) {
    const bool decodes = done > 0 && done % 5 != 0;
    const int64_t count = decodes ? 1 : std::min<int64_t>(length - done, 9);
    std::vector<model::PagedSequence> batch;
    std::vector<at::Tensor> rows;
    for (int64_t i = 0; i < 2; ++i) {
      batch.push_back({.first_token = i * count,
                       .num_tokens = count,
                       .context_length = done + count,
                       .blocks = blocks.data() + i * (length / kStateBlockSize + 1),
                       .state = static_cast<int32_t>(2 * i)});
      rows.push_back(inputs[0].narrow(0, i * length + done, count));
    }
    const int64_t padded_to = decodes && device.is_cuda() ? 4 : 0;
    if (padded_to > 0) rows.push_back(comparer.Random({padded_to - 2, spec.projected_size()}));
    model::DeltaTensors tensors = TensorsOf(inputs);
    tensors.projected = at::cat(rows);
    at::Tensor found;
    if (on_device != nullptr) {
      on_device->Plan(batch, padded_to);
      found = on_device->ForwardDelta(0, spec, tensors);
      // The next plan overwrites what this one reads.
      found.narrow(0, 0, 1).cpu();
    } else {
      found = model::PagedAttention(cache, batch).ForwardDelta(0, spec, tensors);
    }
    for (int64_t i = 0; i < 2; ++i) {
      comparer.ExpectEqual(found.narrow(0, i * count, count),
                           whole.narrow(0, i * length + done, count),
                           absl::StrCat(NameOf(spec), ": ", count, " tokens behind ", done));
    }
    done += count;
  }
}

}  // namespace

void CompareLinearAttention(Comparer& comparer) {
  // Gradients need tensors of their own.
  const c10::InferenceMode inference(false);
  const auto spec = [](int64_t key_heads, int64_t value_heads, int64_t key_dim, int64_t value_dim,
                       int64_t kernel_size) {
    return model::DeltaSpec{.num_key_heads = key_heads,
                            .num_value_heads = value_heads,
                            .key_dim = key_dim,
                            .value_dim = value_dim,
                            .kernel_size = kernel_size};
  };
  std::vector<model::DeltaSpec> specs = {spec(2, 4, 128, 128, 4), spec(3, 3, 20, 37, 3)};
  if (!comparer.small()) {
    specs.push_back(spec(1, 2, 64, 64, 4));
    specs.push_back(spec(1, 1, 256, 200, 2));
  }
  for (const model::DeltaSpec& of : specs) {
    ComparePackedDelta(
        comparer, of,
        comparer.small() ? std::vector<int64_t>{3, 70} : std::vector<int64_t>{1, 5, 130, 64, 200});
    const at::NoGradGuard no_grad;
    CompareSteps(comparer, of, comparer.small() ? 20 : 60);
  }
}

}  // namespace tandem::gpu_check
