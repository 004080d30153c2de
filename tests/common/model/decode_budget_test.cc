// Budgets of a decode step on a GPU, layer by layer: launches of our kernels and operators of ATen that
// compute something, which are about a launch each, and reads of device memory by the host, of which
// a graph may hold none. Counted with the kernels of a GPU on a CPU (emulated_gpu). More than the table
// says is a loss that no other test shows; raise an entry only with a reason.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "common/model/arena.h"
#include "common/model/model_cache.h"
#include "common/model/random_init.h"
#include "common/model/transformer.h"
#include "tests/common/model/emulated_attention.h"
#include "tests/common/model/exact_shapes.h"
#include "tests/support/cuda_emulation.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

// Operators that ran within its lifetime, on this thread.
class OperatorCount {
 public:
  OperatorCount() {
    current_ = this;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&Enter, &Leave).scopes({at::RecordScope::FUNCTION}));
  }
  ~OperatorCount() {
    at::removeCallback(handle_);
    current_ = nullptr;
  }

  int64_t computing() const { return static_cast<int64_t>(names_.size()); }
  int64_t host_reads() const { return host_reads_; }
  std::string names() const {
    std::string all;
    for (const std::string& name : names_) all += " " + name;
    return all;
  }

 private:
  // Those that only make another view, or memory without contents. A conversion calls others.
  static bool Computes(const std::string& name) {
    static const std::set<std::string> none = {"aten::alias",
                                               "aten::to",
                                               "detach",
                                               "aten::as_strided",
                                               "aten::chunk",
                                               "aten::detach",
                                               "aten::empty",
                                               "aten::empty_like",
                                               "aten::empty_strided",
                                               "aten::expand",
                                               "aten::flatten",
                                               "aten::is_nonzero",
                                               "aten::narrow",
                                               "aten::new_empty",
                                               "aten::permute",
                                               "aten::reshape",
                                               "aten::resize_",
                                               "aten::select",
                                               "aten::slice",
                                               "aten::split",
                                               "aten::split_with_sizes",
                                               "aten::squeeze",
                                               "aten::t",
                                               "aten::transpose",
                                               "aten::unbind",
                                               "aten::unflatten",
                                               "aten::unsqueeze",
                                               "aten::view",
                                               "aten::_reshape_alias",
                                               "aten::_unsafe_view"};
    return none.count(name) == 0;
  }

  static std::unique_ptr<at::ObserverContext> Enter(const at::RecordFunction& /*function*/) {
    current_->inner_.push_back(false);
    return nullptr;
  }
  // An operator counts if it calls no other one that does.
  static void Leave(const at::RecordFunction& function, at::ObserverContext* /*context*/) {
    const std::string name = function.name();
    const bool has_inner = current_->inner_.back();
    current_->inner_.pop_back();
    const bool computes = has_inner || Computes(name);
    if (computes && !current_->inner_.empty()) current_->inner_.back() = true;
    if (computes && !has_inner) current_->names_.push_back(name);
    if (name == "aten::_local_scalar_dense") ++current_->host_reads_;
  }

  static thread_local OperatorCount* current_;
  at::CallbackHandle handle_;
  std::vector<bool> inner_;  // of operators under way: whether an inner one computes
  std::vector<std::string> names_;
  int64_t host_reads_ = 0;
};
thread_local OperatorCount* OperatorCount::current_ = nullptr;

struct Budget {
  const char* what;
  ExactShape shape;
  int64_t layer;  // of the shape's model
  int64_t launches;
  int64_t operators;
};

void PrintTo(const Budget& budget, std::ostream* out) { *out << budget.what; }

std::vector<Budget> Budgets() {
  const ExactShape plain = {"plain", 4, 2, 64, 64, 96, 150};
  ExactShape biased = plain;
  biased.qkv_bias = true;
  ExactShape normed = plain;
  normed.qk_norm = true;
  return {
      {"Llama", plain, 0, 10, 0},
      {"Qwen2", biased, 0, 10, 0},
      {"Qwen3", normed, 0, 10, 0},
      {"experts", ExpertShapes()[0], 1, 15, 0},
      {"experts in groups", ExpertShapes()[2], 1, 18, 0},
      {"latent attention", LatentShapes()[0], 0, 10, 0},
      {"linear attention", LinearShapes()[0], 0, 10, 0},
  };
}

class DecodeBudget : public ::testing::TestWithParam<Budget> {
 protected:
  void SetUp() override { at::set_num_threads(1); }
};

TEST_P(DecodeBudget, OfALayerHolds) {
  const Budget& budget = GetParam();
  constexpr int64_t kSequences = 6;  // more than the kernel for few rows takes
  const at::NoGradGuard no_grad;
  const Transformer model(budget.shape.Spec());
  const ModelSpec& spec = model.spec();
  Arena arena(model.table(), at::kBFloat16);
  RandomInit(spec, 3, arena);
  ASSERT_OK_AND_ASSIGN(PagedKvCacheOptions options,
                       CacheOfModel(spec, {}, LatentCache::kLatents, at::kCPU));
  options.windows = CacheWindows(spec, /*on_gpu=*/true);
  std::fill(options.sizes.begin(), options.sizes.end(), 1);
  options.num_blocks = kSequences;
  options.block_size = 16;
  options.dtype = at::kBFloat16;
  options.states = {.count = kSequences, .dtype = at::kBFloat16};
  for (const LayerSpec& layer : spec.layers) options.states.layers.push_back(layer.attention.delta);
  ASSERT_OK_AND_ASSIGN(const PagedKvCache cache, PagedKvCache::Create(options));
  EmulatedAttention attention(cache, spec.layers.front().attention.num_heads);
  std::vector<int32_t> blocks(kSequences);
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<PagedSequence> sequences;
  for (int64_t i = 0; i < kSequences; ++i) {
    sequences.push_back({i, 1, 1, &blocks[i], static_cast<int32_t>(i)});
  }
  attention.Plan(sequences, 0);
  const at::Tensor positions = at::zeros({kSequences}, at::kLong);
  const Rotary rotary = model.MakeRotary(positions);
  const Residual x{model.Embed(arena, at::arange(kSequences), positions),
                   at::ones({kSequences, spec.hidden_size}, at::kBFloat16)};
  const int64_t launched = cuda_emulation::Gpu::Current().launches();
  const OperatorCount count;
  const Residual out = model.Block(arena, budget.layer, x, rotary, attention);
  EXPECT_TRUE(out.x.defined());
  EXPECT_LE(cuda_emulation::Gpu::Current().launches() - launched, budget.launches);
  EXPECT_LE(count.computing(), budget.operators) << count.names();
  EXPECT_EQ(count.host_reads(), 0);
}

INSTANTIATE_TEST_SUITE_P(Layers, DecodeBudget, ::testing::ValuesIn(Budgets()),
                         [](const auto& info) {
                           std::string name = info.param.what;
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

}  // namespace
}  // namespace tandem::model
