// Softcaps, sinks, ALiBi and windows: packed attention against plain ATen in float64, with
// gradients, and paged attention against packed attention bit for bit.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "common/model/packed_attention.h"
#include "common/model/paged_attention.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

struct Case {
  std::string name;
  double softcap = 0.0;
  double alibi_scale = 0.0;
  bool sinks = false;
  Window window;
};

constexpr int64_t kHeads = 6;
constexpr int64_t kKvHeads = 2;
constexpr int64_t kHeadDim = 20;
const std::vector<int64_t>& Starts() {
  static const std::vector<int64_t> starts = {0, 1, 34, 34, 334, 400};
  return starts;
}

class AttentionSwitches : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    at::manual_seed(11);
    const int64_t tokens = Starts().back();
    q_ = at::randn({tokens, kHeads, kHeadDim});
    k_ = at::randn({tokens, kKvHeads, kHeadDim});
    v_ = at::randn({tokens, kKvHeads, kHeadDim});
    sinks_ = at::randn({kHeads});
  }

  AttentionParams Params() const {
    AttentionParams params{.scale = 0.4};
    params.softcap = GetParam().softcap;
    params.alibi = {GetParam().alibi_scale, kHeads, 0};
    params.window = GetParam().window;
    return params;
  }

  // The output and the gradients of q, k, v and the sinks.
  std::vector<at::Tensor> Results(PackedAttention::Implementation implementation,
                                  at::ScalarType from, at::ScalarType type) {
    const at::AutoGradMode grad(true);
    PackedAttention attention(at::tensor(Starts(), at::kLong), implementation);
    AttentionParams params = Params();
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& x : {q_, k_, v_, sinks_}) {
      leaves.push_back(x.to(from).to(type).clone().requires_grad_(true));
    }
    if (GetParam().sinks) {
      params.sinks = leaves[3];
    } else {
      leaves.pop_back();
    }
    const at::Tensor out = attention.Forward(0, leaves[0], leaves[1], leaves[2], params);
    const at::Tensor weight = at::sin(at::arange(out.numel(), at::kDouble)).view(out.sizes());
    std::vector<at::Tensor> results = {out.detach()};
    for (const at::Tensor& gradient :
         torch::autograd::grad({(out.to(at::kDouble) * weight).sum()}, leaves)) {
      results.push_back(gradient);
    }
    return results;
  }

  void ExpectAgreement(at::ScalarType type, double tolerance) {
    using Implementation = PackedAttention::Implementation;
    const std::vector<at::Tensor> expected = Results(Implementation::kEager, type, at::kDouble);
    const std::vector<at::Tensor> found = Results(Implementation::kFast, type, type);
    ASSERT_EQ(expected.size(), found.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      const double difference = (expected[i] - found[i].to(at::kDouble)).abs().max().item<double>();
      EXPECT_LT(difference, tolerance * (1 + expected[i].abs().max().item<double>()))
          << "result " << i;
    }
  }

  at::Tensor q_, k_, v_, sinks_;
};

TEST_P(AttentionSwitches, AgreeWithAtenInFloat32) { ExpectAgreement(at::kFloat, 2e-5); }

TEST_P(AttentionSwitches, AgreeWithAtenInBFloat16) { ExpectAgreement(at::kBFloat16, 3e-2); }

TEST_P(AttentionSwitches, PagedAttentionHasTheSameBits) {
  const at::NoGradGuard no_grad;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    AttentionParams params = Params();
    if (GetParam().sinks) params.sinks = sinks_.to(type);
    const at::Tensor q = q_.to(type), k = k_.to(type), v = v_.to(type);
    PackedAttention packed(at::tensor(Starts(), at::kLong));
    const at::Tensor expected = packed.Forward(0, q, k, v, params);
    const int64_t begin = 34, end = 334;  // the longest sequence
    for (const int64_t chunk : {300, 37, 1}) {
      ASSERT_OK_AND_ASSIGN(PagedKvCache cache, PagedKvCache::Create({.num_layers = 1,
                                                                     .num_blocks = 32,
                                                                     .num_kv_heads = kKvHeads,
                                                                     .head_dim = kHeadDim,
                                                                     .dtype = type}));
      std::vector<int32_t> blocks;
      for (int32_t i = 0; i < 20; ++i) blocks.push_back(30 - i);
      for (int64_t first = begin; first < end; first += chunk) {
        const int64_t count = std::min(chunk, end - first);
        PagedAttention paged(cache, {{.first_token = 0,
                                      .num_tokens = count,
                                      .context_length = first + count - begin,
                                      .blocks = blocks.data()}});
        const at::Tensor found =
            paged.Forward(0, q.narrow(0, first, count), k.narrow(0, first, count),
                          v.narrow(0, first, count), params);
        ASSERT_TRUE(at::equal(found, expected.narrow(0, first, count)))
            << type << ", chunks of " << chunk << ", token " << first - begin;
      }
    }
  }
}

// Two sequences of one prompt give the results and gradients of the same ones without sharing.
TEST_P(AttentionSwitches, SharedPrefixesChangeNothing) {
  const int64_t prompt = 45, answer = 20;
  const auto run = [&](bool shares) {
    const at::AutoGradMode grad(true);
    const at::Tensor sinks = sinks_.clone().requires_grad_(true);
    AttentionParams params = Params();
    if (GetParam().sinks) params.sinks = sinks;
    // The rows of the first sequence, then of the second one's answer.
    const auto rows = [&](const at::Tensor& x) {
      const at::Tensor first = x.narrow(0, 0, prompt + answer);
      const at::Tensor second = x.narrow(0, 100, answer);
      return shares ? at::cat({first, second}) : at::cat({first, x.narrow(0, 0, prompt), second});
    };
    const at::Tensor q = q_.clone().requires_grad_(true);
    const int64_t whole = prompt + answer;
    const at::Tensor ends = shares ? at::tensor({int64_t{0}, whole, whole + answer})
                                   : at::tensor({int64_t{0}, whole, 2 * whole});
    const at::Tensor prefixes =
        shares ? at::tensor({int64_t{0}, int64_t{0}, int64_t{0}, prompt}).view({2, 2})
               : at::Tensor();
    PackedAttention attention(ends, PackedAttention::Implementation::kFast, prefixes);
    const at::Tensor out = attention.Forward(0, rows(q), rows(k_), rows(v_), params);
    const at::Tensor answers =
        at::cat({out.narrow(0, prompt, answer), out.narrow(0, out.size(0) - answer, answer)});
    const at::Tensor weight =
        at::sin(at::arange(answers.numel(), at::kFloat)).view(answers.sizes());
    std::vector<at::Tensor> leaves = {q};
    if (GetParam().sinks) leaves.push_back(sinks);
    std::vector<at::Tensor> results = {answers.detach()};
    for (const at::Tensor& g : torch::autograd::grad({(answers * weight).sum()}, leaves)) {
      results.push_back(g);
    }
    return results;
  };
  const std::vector<at::Tensor> alone = run(false), shared = run(true);
  EXPECT_TRUE(at::equal(alone[0], shared[0]));
  for (size_t i = 1; i < alone.size(); ++i) {
    EXPECT_TRUE(at::allclose(alone[i], shared[i], 1e-5, 1e-5)) << "gradient " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Switches, AttentionSwitches,
    ::testing::Values(
        Case{.name = "Softcap", .softcap = 2.0}, Case{.name = "Alibi", .alibi_scale = 1.0},
        Case{.name = "AlibiScaled", .alibi_scale = 0.25, .window = 40},
        Case{.name = "Sinks", .sinks = true},
        Case{.name = "SinksAndWindow", .sinks = true, .window = 20},
        Case{.name = "Chunks", .window = {40, true}},
        Case{.name = "SinksAndLargeChunks", .sinks = true, .window = {150, true}},
        Case{.name = "All", .softcap = 3.0, .alibi_scale = 0.5, .sinks = true, .window = 150}),
    [](const ::testing::TestParamInfo<Case>& info) { return info.param.name; });

// transformers' build_alibi_tensor (models/bloom): powers of two, then every second slope of twice
// as many heads.
TEST(Alibi, SlopesAreTransformers) {
  for (int64_t head = 0; head < 8; ++head) {
    EXPECT_FLOAT_EQ(SlopeOf({1.0, 8, 0}, head), std::exp2(-1.0 - static_cast<double>(head)));
  }
  const std::vector<float> of_six = {0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f, 0.125f};
  for (int64_t head = 0; head < 6; ++head)
    EXPECT_FLOAT_EQ(SlopeOf({1.0, 6, 0}, head), of_six[head]);
  EXPECT_FLOAT_EQ(SlopeOf({2.0, 6, 4}, 1), 0.25f);  // a rank's second head, scaled
}

}  // namespace
}  // namespace tandem::model
